package wait

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestVector39Creators has a row for every suspend value of UiPath.
func TestVector39Creators(t *testing.T) {
	noon := time.Date(2026, 7, 6, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, value string
		want        Spec // Payload is compared only if it is set
	}{
		{"InvokeProcess, the seed's", `{"name":"TestProcess","input_arguments":{"x":1}}`,
			Spec{Type: TypeJob, Name: "JOB", Process: "TestProcess", FolderPath: "Shared", Payload: json.RawMessage(`{"process_name":"TestProcess","input_arguments":{"x":1}}`)}},
		{"InvokeProcess, dumped", `{"name":"P","process_folder_path":"Finance/EU","process_folder_key":null,"input_arguments":null,"attachments":null}`,
			Spec{Type: TypeJob, Name: "JOB", Process: "P", FolderPath: "Finance/EU",
				Payload: json.RawMessage(`{"process_name":"P","input_arguments":{}}`)}},
		{"InvokeProcess, camelCase and more", `{"name":"P","inputArguments":{"big":12345678901234567890},"processFolderKey":"k","priority":1.0}`,
			Spec{Type: TypeJob, Name: "JOB", Process: "P", FolderKey: "k",
				Payload: json.RawMessage(`{"process_name":"P","input_arguments":{"big":12345678901234567890},"priority":1.0}`)}},
		{"InvokeProcessRaw", `{"type":"InvokeProcessRaw","name":"P"}`,
			Spec{Type: TypeJob, Name: "JOB_RAW", Process: "P", FolderPath: "Shared", Payload: json.RawMessage(`{"process_name":"P","input_arguments":{},"type":"InvokeProcessRaw"}`)}},
		{"WaitJob", `{"job":{"id":0,"key":"job-1","folder_key":"f"},"process_folder_path":null,"process_folder_key":null}`,
			Spec{Type: TypeJob, Name: "JOB", ItemKey: "job-1", FolderKey: "f"}},
		{"WaitJob by alias", `{"job":{"Key":"job-1","ReleaseName":"P","State":"Running"},"process_folder_path":"Shared"}`,
			Spec{Type: TypeJob, Name: "JOB", ItemKey: "job-1", Process: "P", FolderPath: "Shared"}},
		{"WaitJobRaw", `{"__type__":"uipath.platform.common.WaitJobRaw","job":{"key":"job-1"}}`, Spec{Type: TypeJob, Name: "JOB_RAW", ItemKey: "job-1"}},
		{"InvokeSystemAgent", `{"agent_name":"A","entrypoint":"main","input_arguments":{"q":1},"folder_path":"F","folder_key":"K"}`,
			Spec{Type: TypeJob, Name: "JOB", Process: "A", FolderPath: "F", FolderKey: "K"}},
		{"WaitSystemAgent", `{"job_key":"j","process_folder_path":"F"}`, Spec{Type: TypeJob, Name: "JOB", ItemKey: "j", FolderPath: "F"}},
		{"CreateTask", `{"title":"Approve","data":{"a":1},"assignee":"","recipient":null,"app_name":"App","app_folder_path":"F","app_folder_key":"K","app_key":null,"priority":null,"labels":null,"is_actionable_message_enabled":null,"actionable_message_metadata":null,"source_name":"Agent"}`,
			Spec{Type: TypeTask, Name: "TASK", FolderPath: "F", FolderKey: "K"}},
		{"CreateEscalation", `{"type":"CreateEscalation","title":"Help"}`, Spec{Type: TypeTask, Name: "ESCALATION"}},
		{"WaitTask", `{"action":{"id":42,"title":"x"},"app_name":"App"}`, Spec{Type: TypeTask, Name: "TASK", ItemKey: "42"}},
		{"WaitTask by key", `{"action":{"id":42,"key":"k"}}`, Spec{Type: TypeTask, Name: "TASK", ItemKey: "k"}},
		{"WaitEscalation", `{"type":"WaitEscalation","action":{"key":"k"},"app_folder_path":"F"}`, Spec{Type: TypeTask, Name: "ESCALATION", ItemKey: "k", FolderPath: "F"}},
		{"CreateDeepRag", `{"name":"n","index_name":"i","prompt":"p","glob_pattern":"**","citation_mode":"Skip","index_folder_path":"F"}`,
			Spec{Type: TypeDeepRag, Name: "DEEP_RAG", FolderPath: "F"}},
		{"CreateDeepRagRaw", `{"type":"CreateDeepRagRaw","name":"n","index_id":"i","prompt":"p"}`, Spec{Type: TypeDeepRag, Name: "DEEP_RAG_RAW"}},
		{"WaitDeepRag", `{"deep_rag":{"id":"d"},"index_folder_key":"K"}`, Spec{Type: TypeDeepRag, Name: "DEEP_RAG", ItemKey: "d", FolderKey: "K"}},
		{"WaitDeepRagRaw", `{"type":"WaitDeepRagRaw","deep_rag":{"id":"d"}}`, Spec{Type: TypeDeepRag, Name: "DEEP_RAG_RAW", ItemKey: "d"}},
		{"CreateEphemeralIndex", `{"usage":"DeepRAG","attachments":["a"]}`, Spec{Type: TypeIndexIngestion, Name: "INDEX_INGESTION"}},
		{"WaitEphemeralIndex", `{"index":{"id":"i"}}`, Spec{Type: TypeIndexIngestion, Name: "INDEX_INGESTION", ItemKey: "i"}},
		{"WaitEphemeralIndexRaw", `{"type":"WaitEphemeralIndexRaw","index":{"id":"i"}}`, Spec{Type: TypeIndexIngestion, Name: "INDEX_INGESTION_RAW", ItemKey: "i"}},
		{"CreateBatchTransform", `{"name":"n","index_name":"i","prompt":"p","output_columns":[],"destination_path":"out.csv","enable_web_search_grounding":false}`,
			Spec{Type: TypeBatchRag, Name: "BATCH_RAG"}},
		{"WaitBatchTransform", `{"batch_transform":{"id":"b"}}`, Spec{Type: TypeBatchRag, Name: "BATCH_RAG", ItemKey: "b"}},
		{"DocumentExtraction", `{"project_name":"p","tag":"t","file":null,"file_path":"x.pdf"}`, Spec{Type: TypeIxpExtraction, Name: "EXTRACTION"}},
		{"WaitDocumentExtraction", `{"extraction":{"operation_id":"o","project_id":"p","tag":"t"}}`, Spec{Type: TypeIxpExtraction, Name: "EXTRACTION", ItemKey: "o"}},
		{"DocumentExtractionValidation", `{"extraction_response":{},"action_title":"t","action_catalog":null}`, Spec{Type: TypeIxpVsEscalation, Name: "IXP_VS_ESCALATION"}},
		{"WaitDocumentExtractionValidation", `{"extraction_validation":{"operationId":"o"},"task_url":null}`, Spec{Type: TypeIxpVsEscalation, Name: "IXP_VS_ESCALATION", ItemKey: "o"}},
		{"WaitIntegrationEvent, camelCase", `{"connector":"slack","connectionName":"c","connectionFolderPath":"F","operation":"MESSAGE_RECEIVED","objectName":"message","filterExpression":null,"parameters":{"a":"b"}}`,
			Spec{Type: TypeInbox, Name: "INBOX"}},
		{"MeshJob", `{"type":"MeshJob","capability":"forecast"}`, Spec{Type: TypeMeshJob, Name: "MESH_JOB", Process: "forecast"}},
		{"MeshJob by the trigger's type", `{"type":"MESH_JOB","capability":"forecast","submitted_payload":{"a":1},"max_duration":60}`, Spec{Type: TypeMeshJob, Name: "MESH_JOB", Process: "forecast"}},
		{"MeshJob by its fields", `{"capability":"forecast","submitted_payload":{}}`, Spec{Type: TypeMeshJob, Name: "MESH_JOB", Process: "forecast"}},
		{"WaitMeshJob", `{"type":"WaitMeshJob","job_id":"j"}`, Spec{Type: TypeMeshJob, Name: "MESH_JOB", ItemKey: "j"}},
		{"WaitMeshJob by its fields", `{"job_id":"j","capability":"forecast"}`, Spec{Type: TypeMeshJob, Name: "MESH_JOB", ItemKey: "j", Process: "forecast"}},
		{"a capability alone is any value", `{"capability":"forecast"}`, Spec{Type: TypeAPI, Name: "API"}},
		{"WaitUntil", `{"resume_time":"2026-07-06T12:00:00Z"}`, Spec{Type: TypeTimer, Name: "TIMER", ResumeAt: &noon}},
		{"WaitUntil in another zone is normalised", `{"resumeTime":"2026-07-06T14:00:00+02:00"}`, Spec{Type: TypeTimer, Name: "TIMER", ResumeAt: &noon}},
		{"WaitUntil as Python's str() writes it", `{"type":"WaitUntil","until":"2026-07-06 12:00:00+00:00"}`, Spec{Type: TypeTimer, Name: "TIMER", ResumeAt: &noon}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseSpecs(json.RawMessage(c.value))
			if err != nil || len(got) != 1 {
				t.Fatalf("got %v, %v", got, err)
			}
			if c.want.Payload == nil {
				c.want.Payload = json.RawMessage(c.value)
			}
			if diff := cmp.Diff(c.want, got[0]); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestVector39AnyOtherValueIsAPI(t *testing.T) {
	for _, v := range []string{
		`null`, `""`, `"text"`, `7`, `true`, `{}`,
		`{"name":"P"}`, `{"name":7,"input_arguments":{}}`, `{"name":"P","input_arguments":"x"}`,
		`{"title":"Approve?"}`, `{"title":"Approve?","question":"really?"}`, `{"name":"n","prompt":"p"}`,
		`{"job":{"name":"x"}}`, `{"job":{"key":"x"},"other":1}`, `{"until":"tomorrow"}`, `{"type":"hitl","name":"x"}`, `{"agent_name":"x"}`,
	} {
		got, err := ParseSpecs(json.RawMessage(v))
		if want := []Spec{{Type: TypeAPI, Name: "API", Payload: json.RawMessage(v)}}; err != nil || !cmp.Equal(want, got) {
			t.Errorf("%s: got %v, %v", v, got, err)
		}
	}
}

func TestVector39ListIsSiblings(t *testing.T) {
	got, err := ParseSpecs(json.RawMessage(`[{"title":"Approve","app_name":"A"},{"resume_time":"2026-07-06T12:00:00Z"},"or say so",["a list"]]`))
	if err != nil {
		t.Fatal(err)
	}
	var types []Type
	for _, s := range got {
		types = append(types, s.Type)
	}
	if diff := cmp.Diff([]Type{TypeTask, TypeTimer, TypeAPI, TypeAPI}, types); diff != "" {
		t.Error(diff)
	}
	if _, err := ParseSpecs(json.RawMessage(`[]`)); err == nil {
		t.Error("an empty list was accepted")
	}
}

func TestModelErrors(t *testing.T) {
	for value, want := range map[string]string{
		`{"resume_time":"2026-07-06T12:00:00"}`:                     `WaitUntil: resume_time: expected a time with its zone such as "2026-07-06T12:00:00Z", got "2026-07-06T12:00:00"`,
		`{"until":"2026-07-06 12:00"}`:                              "expected a time with its zone",
		`{"type":"WaitUntil"}`:                                      "WaitUntil: resume_time is missing; expected a string",
		`{"type":"InvokeProcess","input_arguments":{}}`:             "InvokeProcess: name is missing; expected a string",
		`{"type":"InvokeProcess","name":"P","input_arguments":"x"}`: "InvokeProcess: input_arguments: expected an object, got a string",
		`{"name":"","input_arguments":{}}`:                          "InvokeProcess: name: expected a string that is not empty",
		`{"type":"WaitJob","job":{"id":""}}`:                        "WaitJob: job.key is missing",
		`{"__type__":"CreateTask"}`:                                 "CreateTask: title is missing",
	} {
		if got, err := ParseSpecs(json.RawMessage(value)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: expected an error with %q, got %v, %v", value, want, got, err)
		}
	}
}

func TestInputArguments(t *testing.T) {
	for value, want := range map[string]string{
		`{"name":"P","input_arguments":{"a":[1.50]}}`: `{"a":[1.50]}`,
		`{"name":"P","input_arguments":null}`:         `{}`,
		`"text"`:                                      `{}`,
	} {
		specs, err := ParseSpecs(json.RawMessage(value))
		if err != nil || string(specs[0].InputArguments()) != want {
			t.Errorf("%s: got %s, %v", value, specs[0].InputArguments(), err)
		}
	}
}

func TestUiPathSpelling(t *testing.T) {
	for typ, want := range map[Type]string{"API": "Api", "IXP_VS_ESCALATION": "IxpVsEscalation", TypeMCPTask: "None"} {
		if got := UiPathType(typ); got != want {
			t.Errorf("%s became %s, not %s", typ, got, want)
		}
	}
}
