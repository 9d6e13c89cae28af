{{- define "peakplan.cells" -}}
cell-1,cell-2
{{- end }}

{{- define "peakplan.labels" -}}
app.kubernetes.io/name: peakplan
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- /* What selects a part's pods: of (dict "root" $ "part" "host" "cell" "cell-1"). */}}
{{- define "peakplan.selector" -}}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- with .cell }}
peakplan/cell: {{ . }}
{{- end }}
{{- end }}

{{- define "peakplan.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- /* Of a pod whose image's user Kubernetes cannot tell from root by its name: the number of it. */}}
{{- define "peakplan.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext: {runAsNonRoot: true, runAsUser: {{ . }}, runAsGroup: {{ . }}, seccompProfile: {type: RuntimeDefault}}
{{- end }}
