package wait

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/wait/jsonvalue"
)

// model is one of UiPath's suspend values as pydantic writes it, or one of ours for a job of MCP
// Mesh in the same style. Python tells them apart by class; JSON does not carry the class, so a
// model is known by its fields unless the value names it.
type model struct {
	class string
	// alias is another name of the class, empty if it has none.
	alias string
	// raw says that a class with the suffix Raw exists, whose trigger name has the suffix _RAW.
	raw  bool
	typ  Type
	name string
	// need are the fields that must be there; some are fields of which one at least must be there
	// if the class is not named; may are the other ones. A name may be followed by the kind of
	// value: :s string, :o object, :m object or null, :a array.
	need, some, may string
	// open says that unknown fields do not speak against the model.
	open bool
	// item are the places at which the key of something that exists already may stand.
	item string
	// process, path and key are the places of the process's name and of its folder.
	process, path, key string
}

var models = func() []model {
	const (
		task   = "data assignee recipient app_name app_folder_path app_folder_key app_key priority is_actionable_message_enabled actionable_message_metadata source_name"
		action = "app_folder_path app_folder_key app_name recipient"
		folder = "process_folder_path process_folder_key"
		index  = "index_folder_path index_folder_key"
	)
	return []model{
		{class: "InvokeProcess", raw: true, typ: TypeJob, name: "JOB", need: "name:s input_arguments:m",
			may: folder + " attachments", open: true, process: "name", path: "process_folder_path", key: "process_folder_key"},
		{class: "WaitJob", raw: true, typ: TypeJob, name: "JOB", need: "job:o", may: folder, item: "job.key",
			process: "job.release_name", path: "process_folder_path", key: "process_folder_key job.folder_key"},
		{class: "InvokeSystemAgent", typ: TypeJob, name: "JOB", need: "agent_name:s entrypoint:s",
			may: "input_arguments:m folder_path folder_key", process: "agent_name", path: "folder_path", key: "folder_key"},
		{class: "WaitSystemAgent", typ: TypeJob, name: "JOB", need: "job_key:s", may: folder, item: "job_key",
			path: "process_folder_path", key: "process_folder_key"},
		{class: "CreateTask", typ: TypeTask, name: "TASK", need: "title:s", some: task, may: "labels",
			path: "app_folder_path", key: "app_folder_key"},
		{class: "CreateEscalation", typ: TypeTask, name: "ESCALATION", need: "title:s", some: task, may: "labels",
			path: "app_folder_path", key: "app_folder_key"},
		{class: "WaitTask", typ: TypeTask, name: "TASK", need: "action:o", may: action, item: "action.key action.id",
			path: "app_folder_path", key: "app_folder_key"},
		{class: "WaitEscalation", typ: TypeTask, name: "ESCALATION", need: "action:o", may: action,
			item: "action.key action.id", path: "app_folder_path", key: "app_folder_key"},
		{class: "CreateDeepRag", raw: true, typ: TypeDeepRag, name: "DEEP_RAG",
			need: "name:s prompt:s", some: "index_name index_id",
			may: "glob_pattern citation_mode is_ephemeral_index " + index, path: "index_folder_path", key: "index_folder_key"},
		{class: "WaitDeepRag", raw: true, typ: TypeDeepRag, name: "DEEP_RAG", need: "deep_rag:o", may: index,
			item: "deep_rag.id", path: "index_folder_path", key: "index_folder_key"},
		{class: "CreateEphemeralIndex", raw: true, typ: TypeIndexIngestion, name: "INDEX_INGESTION",
			need: "usage:s attachments:a"},
		{class: "WaitEphemeralIndex", raw: true, typ: TypeIndexIngestion, name: "INDEX_INGESTION", need: "index:o",
			item: "index.id"},
		{class: "CreateBatchTransform", typ: TypeBatchRag, name: "BATCH_RAG",
			need: "name:s prompt:s output_columns:a destination_path:s",
			may:  "index_name index_id storage_bucket_folder_path_prefix enable_web_search_grounding is_ephemeral_index " + index,
			path: "index_folder_path", key: "index_folder_key"},
		{class: "WaitBatchTransform", typ: TypeBatchRag, name: "BATCH_RAG", need: "batch_transform:o", may: index,
			item: "batch_transform.id", path: "index_folder_path", key: "index_folder_key"},
		{class: "DocumentExtraction", typ: TypeIxpExtraction, name: "EXTRACTION",
			need: "project_name:s tag:s", some: "file file_path"},
		{class: "WaitDocumentExtraction", typ: TypeIxpExtraction, name: "EXTRACTION", need: "extraction:o",
			item: "extraction.operation_id"},
		{class: "DocumentExtractionValidation", typ: TypeIxpVsEscalation, name: "IXP_VS_ESCALATION",
			need: "extraction_response:o action_title:s",
			may:  "action_catalog action_priority action_folder storage_bucket_name storage_bucket_directory_path"},
		{class: "WaitDocumentExtractionValidation", typ: TypeIxpVsEscalation, name: "IXP_VS_ESCALATION",
			need: "extraction_validation:o", may: "task_url", item: "extraction_validation.operation_id"},
		{class: "WaitIntegrationEvent", typ: TypeInbox, name: "INBOX",
			need: "connector:s connection_name:s operation:s object_name:s",
			may:  "connection_folder_path filter_expression parameters:m"},
		{class: "MeshJob", alias: string(TypeMeshJob), typ: TypeMeshJob, name: "MESH_JOB",
			need: "capability:s", some: "submitted_payload", may: "max_duration max_retries", process: "capability"},
		{class: "WaitMeshJob", typ: TypeMeshJob, name: "MESH_JOB", need: "job_id:s", some: "capability", item: "job_id",
			process: "capability"},
		{class: "WaitUntil", typ: TypeTimer, name: "TIMER", need: "resume_time:s"},
	}
}()

// recognise finds the model that a value stands for; nil is any other value. name is the trigger's
// name. The error is for a value that names its model and does not fit it.
func recognise(o jsonvalue.Object) (m *model, name string, err error) {
	for i := range models {
		m := &models[i]
		if class, ok := discriminator(o); ok && (class == m.class ||
			m.alias != "" && class == m.alias || m.raw && class == m.class+"Raw") {
			return m, m.triggerName(class), m.check(o)
		}
	}
	for i := range models {
		if m := &models[i]; m.fits(o) {
			return m, m.name, nil
		}
	}
	return nil, "", nil
}

// discriminator is the class that a value names, with or without its Python module.
func discriminator(o jsonvalue.Object) (string, bool) {
	for _, m := range o {
		if (m.Key == "type" || m.Key == "__type__") && jsonvalue.KindOf(m.Value) == '"' {
			class := jsonvalue.String(m.Value)
			return class[strings.LastIndexByte(class, '.')+1:], true
		}
	}
	return "", false
}

func (m *model) triggerName(class string) string {
	if m.raw && class != m.class {
		return m.name + "_RAW"
	}
	return m.name
}

// check says what is missing from a value that names the model.
func (m *model) check(o jsonvalue.Object) error {
	for f := range strings.FieldsSeq(m.need) {
		name, kind, _ := strings.Cut(f, ":")
		v, ok := m.field(o, name)
		switch {
		case !ok && kind == "m":
		case !ok:
			return fmt.Errorf("%s: %s is missing; expected %s", m.class, name, kinds[kind])
		case !isKind(jsonvalue.KindOf(v), kind):
			return fmt.Errorf("%s: %s: expected %s, got %s", m.class, name, kinds[kind], jsonvalue.KindName(v))
		}
	}
	if m.item != "" && m.itemKey(o) == "" {
		return fmt.Errorf(
			"%s: %s is missing; expected the key of what is waited for", m.class, strings.ReplaceAll(m.item, " ", " or "))
	}
	return nil
}

// fits tells whether an unnamed value can only be this model.
func (m *model) fits(o jsonvalue.Object) bool {
	for f := range strings.FieldsSeq(m.need) {
		name, kind, _ := strings.Cut(f, ":")
		if v, ok := m.field(o, name); !ok || !isKind(jsonvalue.KindOf(v), kind) {
			return false
		}
	}
	if m.item != "" && m.itemKey(o) == "" {
		return false
	}
	found := m.some == ""
	for f := range strings.FieldsSeq(m.some) {
		if v, ok := o.Get(f); ok && jsonvalue.KindOf(v) != 'n' {
			found = true
		}
	}
	return found && (m.open || m.knows(o))
}

// field finds a field. WaitUntil's may also be called "until", if what it holds begins as a date.
func (m *model) field(o jsonvalue.Object, name string) (v []byte, ok bool) {
	if raw, found := o.Get(name); found {
		return raw, true
	}
	if m.typ == TypeTimer {
		if raw, found := o.Get("until"); found && jsonvalue.KindOf(raw) == '"' &&
			dateLike.MatchString(jsonvalue.String(raw)) {
			return raw, true
		}
	}
	return nil, false
}

// knows tells whether every field of the value belongs to the model.
func (m *model) knows(o jsonvalue.Object) bool {
	var known []string
	for f := range strings.FieldsSeq(m.need + " " + m.some + " " + m.may) {
		name, _, _ := strings.Cut(f, ":")
		known = append(known, jsonvalue.Fold(name))
	}
	for _, x := range o {
		if !slices.Contains(known, x.Folded) && (m.typ != TypeTimer || x.Key != "until") {
			return false
		}
	}
	return true
}

func (m *model) itemKey(o jsonvalue.Object) string { return at(o, m.item) }

// at gives the text at the first of some places that has one. A place is a field, or a field of an
// object in a field.
func at(o jsonvalue.Object, places string) string {
	for place := range strings.FieldsSeq(places) {
		outer, inner, nested := strings.Cut(place, ".")
		in := o
		if nested {
			v, _ := o.Get(outer)
			in, _ = jsonvalue.ParseObject(v)
			outer = inner
		}
		if s := in.Text(outer); s != "" {
			return s
		}
	}
	return ""
}

var kinds = map[string]string{"s": "a string", "o": "an object", "m": "an object", "a": "an array"}

func isKind(got byte, want string) bool {
	switch want {
	case "s":
		return got == '"'
	case "o":
		return got == '{'
	case "m":
		return got == '{' || got == 'n'
	case "a":
		return got == '['
	}
	return true
}

var uipathTypes = map[Type]string{
	TypeQueueItem: "QueueItem", TypeJob: "Job", TypeTask: "Task", TypeTimer: "Timer", TypeInbox: "Inbox", TypeAPI: "Api",
	TypeDeepRag: "DeepRag", TypeBatchRag: "BatchRag", TypeIndexIngestion: "IndexIngestion",
	TypeIxpExtraction: "IxpExtraction", TypeIxpVsEscalation: "IxpVsEscalation",
}

// UiPathType gives UiPath's spelling of a trigger type, such as Job or IxpVsEscalation; None for a
// type that UiPath does not have.
func UiPathType(t Type) string { return cmp.Or(uipathTypes[t], "None") }
