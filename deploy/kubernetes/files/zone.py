"""Print the zone of the machine NODE_NAME, as the Kubernetes API knows it; nothing if it has none."""

import json
import os
import ssl
import urllib.request

ACCOUNT = os.environ.get("ACCOUNT_DIR", "/var/run/secrets/kubernetes.io/serviceaccount")
LABEL = "topology.kubernetes.io/zone"
SECONDS_MAX = 10

host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
host = f"[{host}]" if ":" in host else host
with open(f"{ACCOUNT}/token", encoding="ascii") as file:
    token = file.read().strip()
request = urllib.request.Request(
    f"https://{host}:{port}/api/v1/nodes/{os.environ['NODE_NAME']}", headers={"Authorization": f"Bearer {token}"}
)
trust = ssl.create_default_context(cafile=f"{ACCOUNT}/ca.crt")
with urllib.request.urlopen(request, timeout=SECONDS_MAX, context=trust) as answer:
    print(json.load(answer)["metadata"].get("labels", {}).get(LABEL, ""))
