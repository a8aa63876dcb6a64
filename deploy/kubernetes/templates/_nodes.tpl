{{/* The StatefulSet, headless Service and disruption budget of a role. `values` are those of the role. */}}
{{- define "kraft.nodes" -}}
{{- $root := .root }}
{{- $role := .role }}
{{- $values := .values }}
{{- $name := printf "%s-%s" (include "kraft.name" $root) $role }}
{{- $scope := dict "root" $root "component" $role "values" $values }}
apiVersion: v1
kind: Service
metadata:
  name: {{ $name }}
  labels: {{- include "kraft.labels" $scope | nindent 4 }}
spec:
  clusterIP: None
  # Controllers must find one another before any of them can be ready.
  publishNotReadyAddresses: true
  selector: {{- include "kraft.selector" $scope | nindent 4 }}
  ports:
    - {name: {{ $role }}, port: {{ .port }}, targetPort: {{ $role }}, protocol: TCP}
    - {name: admin, port: 9404, targetPort: admin, protocol: TCP}
---
{{- if $values.disruptionBudget.enabled }}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $name }}
  labels: {{- include "kraft.labels" $scope | nindent 4 }}
spec:
  maxUnavailable: {{ $values.disruptionBudget.maxUnavailable }}
  selector:
    matchLabels: {{- include "kraft.selector" $scope | nindent 6 }}
---
{{- end }}
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ $name }}
  labels: {{- include "kraft.labels" $scope | nindent 4 }}
spec:
  serviceName: {{ $name }}
  replicas: {{ $values.replicas }}
  # All start at once: the first controller waits for a majority.
  podManagementPolicy: Parallel
  minReadySeconds: 5
  updateStrategy:
    type: {{ $values.updateStrategy }}
  persistentVolumeClaimRetentionPolicy:
    whenDeleted: {{ ternary "Retain" "Delete" $values.storage.retain }}
    whenScaled: Retain
  selector:
    matchLabels: {{- include "kraft.selector" $scope | nindent 6 }}
  template:
    metadata:
      labels: {{- include "kraft.labels" $scope | nindent 8 }}
        {{- with $values.podLabels }}{{ toYaml . | nindent 8 }}{{ end }}
      annotations:
        # A changed configuration restarts the pods, one by one.
        checksum/config: {{ printf "%s%s" (include (printf "kraft.%sProperties" $role) $root) ($root.Files.Get "files/configure.sh") | sha256sum }}
        {{- if $root.Values.scrapeAnnotations }}
        prometheus.io/scrape: "true"
        prometheus.io/port: "9404"
        prometheus.io/path: /metrics
        {{- end }}
        {{- with $values.podAnnotations }}{{ toYaml . | nindent 8 }}{{ end }}
    spec: {{- include "kraft.pod" . | nindent 6 }}
  volumeClaimTemplates:
    - metadata:
        name: data
        labels: {{- include "kraft.selector" $scope | nindent 10 }}
      spec:
        accessModes: {{ toYaml $values.storage.accessModes | nindent 10 }}
        {{- with $values.storage.className }}
        storageClassName: {{ . }}
        {{- end }}
        resources:
          requests: {storage: {{ $values.storage.size }}}
{{- end }}

{{- define "kraft.pod" -}}
{{- $root := .root }}
{{- $values := .values }}
{{- $scope := dict "root" $root "component" .role "values" $values }}
serviceAccountName: {{ include "kraft.account" $root }}
automountServiceAccountToken: {{ and (eq .role "broker") (eq $root.Values.rack.source "Node") }}
enableServiceLinks: false
terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
securityContext: {{- include "kraft.podSecurity" $root | nindent 2 }}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "kraft.spread" $scope }}
topologySpreadConstraints: {{- . | nindent 2 }}
{{- end }}
initContainers:
  - name: configure
    image: {{ include "kraft.image" $root }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    command: [sh, /etc/kraft/config/configure.sh]
    env: {{- include "kraft.environment" . | nindent 6 }}
    securityContext: {{- include "kraft.containerSecurity" $root | nindent 6 }}
    resources: {{- toYaml $values.resources | nindent 6 }}
    volumeMounts: {{- include "kraft.mounts" $root | nindent 6 }}
containers:
  - name: kraft
    image: {{ include "kraft.image" $root }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    command: [kraft, node, --config, /run/kraft/server.properties, --log-level, {{ $root.Values.logLevel }}{{ if $root.Values.logJson }}, --json{{ end }}]
    workingDir: /var/lib/kafka/data
    env:
      - {name: HOME, value: /tmp}
      - {name: PYTHONDONTWRITEBYTECODE, value: "1"}
    ports:
      - {name: {{ .role }}, containerPort: {{ .port }}, protocol: TCP}
      {{- if and (eq .role "broker") (ne $values.external.type "None") }}
      - {name: external, containerPort: 9094, protocol: TCP}
      {{- end }}
      - {name: admin, containerPort: 9404, protocol: TCP}
    # Replaying a long log takes time; allow an hour.
    startupProbe:
      httpGet: {path: /live, port: admin}
      periodSeconds: 5
      failureThreshold: 720
    # Checks this process only: a check of other nodes would restart a cluster that has lost its quorum.
    livenessProbe:
      httpGet: {path: /live, port: admin}
      periodSeconds: 10
      timeoutSeconds: 5
      failureThreshold: 6
    readinessProbe:
      httpGet: {path: /ready, port: admin}
      periodSeconds: 5
      timeoutSeconds: 3
      failureThreshold: 2
    securityContext: {{- include "kraft.containerSecurity" $root | nindent 6 }}
    resources: {{- toYaml $values.resources | nindent 6 }}
    volumeMounts: {{- include "kraft.mounts" $root | nindent 6 }}
volumes:
  - name: config
    configMap: {name: {{ include "kraft.name" $root }}}
  - name: run
    emptyDir: {medium: Memory, sizeLimit: 4Mi}
  - name: tmp
    emptyDir: {sizeLimit: 64Mi}
  {{- with $root.Values.configSecret }}
  - name: secret
    secret: {secretName: {{ . }}, defaultMode: 0440}
  {{- end }}
  {{- if $root.Values.tls.enabled }}
  - name: tls
    secret: {secretName: {{ required "tls.secret: name the Secret with tls.crt, tls.key and ca.crt" $root.Values.tls.secret }}, defaultMode: 0440}
  {{- end }}
{{- end }}

{{- define "kraft.mounts" -}}
- {name: data, mountPath: /var/lib/kafka/data}
- {name: config, mountPath: /etc/kraft/config, readOnly: true}
- {name: run, mountPath: /run/kraft}
- {name: tmp, mountPath: /tmp}
{{- if .Values.configSecret }}
- {name: secret, mountPath: /etc/kraft/secret, readOnly: true}
{{- end }}
{{- if .Values.tls.enabled }}
- {name: tls, mountPath: /etc/kraft/tls, readOnly: true}
{{- end }}
{{- end }}

{{- define "kraft.environment" -}}
{{- $root := .root }}
{{- $name := printf "%s-%s" (include "kraft.name" $root) .role -}}
- {name: HOME, value: /tmp}
- {name: PYTHONDONTWRITEBYTECODE, value: "1"}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- {name: ROLE, value: {{ .role }}}
- {name: NODE_ID_FIRST, value: {{ .values.nodeIdFirst | quote }}}
- {name: HOST_SUFFIX, value: {{ printf "%s.%s.svc.%s" $name $root.Release.Namespace $root.Values.clusterDomain }}}
- {name: CLUSTER_ID, value: {{ include "kraft.clusterId" $root | quote }}}
{{- if eq .role "controller" }}
- {name: INITIALIZE, value: {{ .values.initialize | quote }}}
- {name: VOTERS, value: {{ include "kraft.voters" $root | quote }}}
{{- else }}
- {name: RACK_SOURCE, value: {{ $root.Values.rack.source | quote }}}
- name: ZONE
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['topology.kubernetes.io/zone']"}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
{{- with .values.external }}
- {name: EXTERNAL_TYPE, value: {{ .type | quote }}}
- {name: EXTERNAL_PORT, value: {{ ternary .nodePortFirst .port (eq .type "NodePort") | quote }}}
- name: EXTERNAL_HOST
  {{- if and (eq .type "NodePort") (not .host) }}
  valueFrom: {fieldRef: {fieldPath: status.hostIP}}
  {{- else if eq .type "None" }}
  value: ""
  {{- else }}
  value: {{ required "brokers.external.host: say what brokers advertise, as broker-{ordinal}.kafka.example.com" .host | quote }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}
