{{- define "kraft.commonProperties" -}}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers={{ include "kraft.quorum" . }}
{{- $protocol := include "kraft.protocol" . }}
listener.security.protocol.map=CONTROLLER:{{ $protocol }},INTERNAL:{{ $protocol }},EXTERNAL:{{ $protocol }}
log.dirs=/var/lib/kafka/data/kraft
kraft.admin.listener=0.0.0.0:9404
{{- /* Only pods reach it; a kraft.admin.token in configSecret closes all but the probes. */}}
kraft.admin.anonymous=true
{{- if .Values.tls.enabled }}
ssl.keystore.type=PEM
ssl.keystore.location=/run/kraft/keystore.pem
ssl.truststore.type=PEM
ssl.truststore.location=/etc/kraft/tls/ca.crt
{{- if ne .Values.tls.clientAuth "none" }}
listener.name.internal.ssl.client.auth={{ .Values.tls.clientAuth }}
listener.name.external.ssl.client.auth={{ .Values.tls.clientAuth }}
{{- end }}
listener.name.controller.ssl.client.auth=required
{{- end }}
{{- end }}

{{- define "kraft.controllerProperties" -}}
process.roles=controller
listeners=CONTROLLER://:9093
{{ include "kraft.commonProperties" . }}
{{- include "kraft.properties" (dict "maps" (list .Values.config .Values.controllers.config)) }}
{{- end }}

{{- define "kraft.brokerProperties" -}}
process.roles=broker
listeners=INTERNAL://:9092{{ if ne .Values.brokers.external.type "None" }},EXTERNAL://:9094{{ end }}
inter.broker.listener.name=INTERNAL
{{ include "kraft.commonProperties" . }}
{{- $copies := min 3 (int .Values.brokers.replicas) }}
{{- $default := dict "default.replication.factor" $copies "offsets.topic.replication.factor" $copies "min.insync.replicas" (ternary 2 1 (ge (int $copies) 3)) }}
{{- include "kraft.properties" (dict "maps" (list $default .Values.config .Values.brokers.config)) }}
{{- end }}
