{{- define "kraft.name" -}}
{{- if contains "kraft" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-kraft" (.Release.Name | trunc 34 | trimSuffix "-") }}{{ end -}}
{{- end }}

{{- define "kraft.selector" -}}
app.kubernetes.io/name: kraft
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "kraft.labels" -}}
{{ include "kraft.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "kraft.image" -}}
{{- with .Values.image }}{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}{{ end -}}
{{- end }}

{{- define "kraft.account" -}}
{{ .Values.serviceAccount.name | default (include "kraft.name" .) }}
{{- end }}

{{/* 22 characters of URL-safe base64, the last of which has room for the two bits that are left. */}}
{{- define "kraft.clusterId" -}}
{{ .Values.clusterId | default (printf "%sA" (printf "%s/%s" .Release.Namespace .Release.Name | sha256sum | trunc 21)) }}
{{- end }}

{{- define "kraft.directoryId" -}}
{{ printf "%sA" (printf "%s/%s/controller/%d" .root.Release.Namespace .root.Release.Name .node | sha256sum | trunc 21) }}
{{- end }}

{{/* HOST of pod n of a role, in the headless service of that role. */}}
{{- define "kraft.host" -}}
{{- $name := printf "%s-%s" (include "kraft.name" .root) .role -}}
{{ printf "%s-%d.%s.%s.svc.%s" $name .ordinal $name .root.Release.Namespace .root.Values.clusterDomain }}
{{- end }}

{{- define "kraft.quorum" -}}
{{- range $n := until (int .Values.controllers.replicas) }}{{ if $n }},{{ end }}{{ include "kraft.host" (dict "root" $ "role" "controller" "ordinal" $n) }}:9093{{ end -}}
{{- end }}

{{- define "kraft.voters" -}}
{{- range $n := until (int .Values.controllers.replicas) }}{{ $id := add $.Values.controllers.nodeIdFirst $n | int }}{{ if $n }},{{ end }}{{ $id }}@{{ include "kraft.host" (dict "root" $ "role" "controller" "ordinal" $n) }}:9093:{{ include "kraft.directoryId" (dict "root" $ "node" $id) }}{{ end -}}
{{- end }}

{{- define "kraft.protocol" -}}
{{ ternary "SSL" "PLAINTEXT" .Values.tls.enabled }}
{{- end }}

{{/* What the chart writes itself; a second line for the same key would decide silently. */}}
{{- define "kraft.reserved" -}}
node.id,process.roles,listeners,advertised.listeners,listener.security.protocol.map,controller.listener.names,inter.broker.listener.name,controller.quorum.bootstrap.servers,controller.quorum.voters,log.dirs,log.dir,metadata.log.dir,broker.rack,kraft.admin.listener,kraft.admin.anonymous,kraft.admin.security.protocol,ssl.keystore.location,ssl.keystore.type,ssl.truststore.location,ssl.truststore.type
{{- end }}

{{/* Lines of server.properties from maps, the later ones first in rank. */}}
{{- define "kraft.properties" -}}
{{- $merged := dict -}}
{{- range .maps }}{{ $merged = mergeOverwrite $merged (deepCopy .) }}{{ end -}}
{{- range $key, $value := $merged }}
{{- if has $key (splitList "," (include "kraft.reserved" $)) }}{{ fail (printf "the chart sets %s itself; remove it from config" $key) }}{{ end }}
{{- if contains "\n" (toString $value) }}{{ fail (printf "config %s has a line break" $key) }}{{ end }}
{{- /* Each number of values is a float64, which would be written as 1e+11. */ -}}
{{- $isWhole := and (kindIs "float64" $value) (eq (floor $value) $value) }}
{{ $key }}={{ ternary (int64 $value) $value $isWhole | toString | replace "\\" "\\\\" }}
{{- end }}
{{- end }}

{{- define "kraft.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "kraft.podSecurity" -}}
{{- $default := dict "runAsNonRoot" true "runAsUser" 1000 "runAsGroup" 1000 "fsGroup" 1000 "fsGroupChangePolicy" "OnRootMismatch" "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{ toYaml (mergeOverwrite $default (deepCopy .Values.podSecurityContext)) }}
{{- end }}

{{- define "kraft.spread" -}}
{{- range $key, $when := dict "topology.kubernetes.io/zone" .values.spread.zone "kubernetes.io/hostname" .values.spread.host }}
{{- if ne $when "Off" }}
- maxSkew: 1
  topologyKey: {{ $key }}
  whenUnsatisfiable: {{ $when }}
  labelSelector:
    matchLabels: {{- include "kraft.selector" $ | nindent 6 }}
{{- end }}
{{- end }}
{{- end }}
