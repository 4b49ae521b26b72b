{{- define "postdate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* At most 50 characters, so that "-migrate" and what a job appends fit. */}}
{{- define "postdate.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "postdate.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "postdate.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "postdate.selector" -}}
app.kubernetes.io/name: {{ include "postdate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "postdate.labels" -}}
{{ include "postdate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "postdate.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- define "postdate.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- .Values.serviceAccount.name | default (include "postdate.fullname" .) }}
{{- else }}
{{- .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{- /* The port that http.listen names. */}}
{{- define "postdate.port" -}}
{{- dig "http" "listen" "" .Values.config | required "config.http.listen: the kubelet needs an address" | regexFind "[0-9]+$" }}
{{- end }}

{{- /* As the program reads it: YAML makes booleans of on and off, and Helm makes 1e+06 of a million. */}}
{{- define "postdate.option" -}}
{{- if kindIs "bool" . }}{{ ternary "on" "off" . }}
{{- else if and (kindIs "float64" .) (eq . (floor .)) }}{{ int64 . }}
{{- else }}{{ . }}
{{- end }}
{{- end }}

{{- /* Addresses come from files where the secret has a whole one. Kubernetes puts $(NAME) in. */}}
{{- define "postdate.env" -}}
- name: POSTDATE_POSTGRES_URL_FILE
  value: /run/postdate/postgres_url
{{- if .Values.postgres.caSecret }}
- name: PGSSLMODE
  value: verify-full
- name: PGSSLROOTCERT
  value: /run/postdate/postgres_ca.crt
{{- end }}
{{- if .Values.amqp.key }}
- name: POSTDATE_AMQP_URL_FILE
  value: /run/postdate/amqp_url
{{- else }}
- name: AMQP_USERNAME
  valueFrom:
    secretKeyRef: {name: {{ .Values.amqp.existingSecret }}, key: {{ .Values.amqp.usernameKey }}}
- name: AMQP_PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ .Values.amqp.existingSecret }}, key: {{ .Values.amqp.passwordKey }}}
- name: POSTDATE_AMQP_URL
  value: {{ printf "%s://$(AMQP_USERNAME):$(AMQP_PASSWORD)@%s/%s" (ternary "amqps" "amqp" .Values.amqp.tls)
      (required "amqp.hosts: name the broker, or a key with its whole address in amqp.key" .Values.amqp.hosts)
      (.Values.amqp.vhost | urlquery | replace "+" "%20") | quote }}
{{- end }}
{{- if .Values.amqp.caSecret }}
- name: POSTDATE_AMQP_CA_FILE
  value: /run/postdate/amqp_ca.crt
{{- end }}
{{- range $section, $options := .Values.config }}
{{- range $name, $value := $options }}
- name: {{ printf "POSTDATE_%s_%s" $section $name | upper }}
  value: {{ include "postdate.option" $value | quote }}
{{- end }}
{{- end }}
{{- if .Values.routes }}
- name: POSTDATE_ROUTE
  {{- $routes := list }}
  {{- range $from, $to := .Values.routes }}
  {{- $routes = append $routes (printf "%s=%s" $from $to) }}
  {{- end }}
  value: {{ join "," $routes | quote }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* All that is secret in one folder, readable for the gateway's group alone. */}}
{{- define "postdate.volumes" -}}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      - secret:
          name: {{ required "postgres.existingSecret: name the secret that holds the database's address" .Values.postgres.existingSecret }}
          items: [{key: {{ .Values.postgres.key }}, path: postgres_url}]
      {{- with .Values.postgres.caSecret }}
      - secret:
          name: {{ . }}
          items: [{key: {{ $.Values.postgres.caKey }}, path: postgres_ca.crt}]
      {{- end }}
      {{- if and (required "amqp.existingSecret: name the secret that holds the broker's address" .Values.amqp.existingSecret) .Values.amqp.key }}
      - secret:
          name: {{ .Values.amqp.existingSecret }}
          items: [{key: {{ .Values.amqp.key }}, path: amqp_url}]
      {{- end }}
      {{- with .Values.amqp.caSecret }}
      - secret:
          name: {{ . }}
          items: [{key: {{ $.Values.amqp.caKey }}, path: amqp_ca.crt}]
      {{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* What the pods of gateways, of the migration and of the test have in common. */}}
{{- define "postdate.pod" -}}
automountServiceAccountToken: false
# Variables such as POSTDATE_PORT are no options.
enableServiceLinks: false
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
volumes:
  {{- include "postdate.volumes" . | nindent 2 }}
{{- end }}

{{- define "postdate.container" -}}
image: {{ include "postdate.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
env:
  {{- include "postdate.env" . | nindent 2 }}
volumeMounts:
  - name: secrets
    mountPath: /run/postdate
    readOnly: true
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- /* Of what the secrets hold now, as far as Helm may read them: gateways are replaced when one has changed. */}}
{{- define "postdate.secretsChecksum" -}}
{{- $all := "" }}
{{- range list .Values.postgres.existingSecret .Values.postgres.caSecret .Values.amqp.existingSecret .Values.amqp.caSecret }}
{{- if . }}
{{- $all = print $all (get (lookup "v1" "Secret" $.Release.Namespace .) "data" | toJson) }}
{{- end }}
{{- end }}
{{- $all | sha256sum }}
{{- end }}
