package wait

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ids gives what ParseInterrupts made, as "id=TYPE/NAME,TYPE/NAME", one string an interrupt.
func ids(t *testing.T, v string) []string {
	t.Helper()
	got, err := ParseInterrupts(json.RawMessage(v))
	if err != nil {
		t.Fatalf("ParseInterrupts(%s): %v", v, err)
	}
	var out []string
	for _, i := range got {
		var specs []string
		for _, s := range i.Specs {
			specs = append(specs, string(s.Type)+"/"+s.Name)
		}
		out = append(out, i.ID+"="+strings.Join(specs, ","))
	}
	return out
}

func TestInterruptShapes(t *testing.T) {
	const job = `{"name":"TestProcess","input_arguments":{"a":1}}`
	const id1, id2 = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
	for _, c := range []struct {
		name, value string
		want        []string
	}{
		{"LangGraph now", `[{"value":` + job + `,"id":"` + id1 + `"}]`, []string{id1 + "=JOB/JOB"}},
		{"LangGraph before 0.6", `[{"value":` + job + `,"resumable":true,"ns":["parent:1","child:2"],"when":"during"}]`,
			[]string{"0ac57d59ea9417a9260d502aee171ede=JOB/JOB"}},
		{"before 0.6 with the derived id", `[{"value":1,"resumable":true,"ns":["x"],"when":"during","interrupt_id":"` + id1 + `"}]`, []string{id1 + "=API/API"}},
		{"before 0.6 without ns", `[{"value":1,"resumable":false,"ns":null,"when":"during"}]`, []string{"placeholder-id=API/API"}},
		{"empty ns", `[{"value":1,"ns":[]}]`, []string{"99aa06d3014798d86001c324468d497f=API/API"}},
		{"id wins over ns", `[{"value":1,"id":"mine","ns":["x"]}]`, []string{"mine=API/API"}},
		{"a null value", `[{"value":null,"id":"` + id1 + `"}]`, []string{id1 + "=API/API"}},
		{"one interrupt alone", `{"value":` + job + `,"id":"` + id1 + `"}`, []string{id1 + "=JOB/JOB"}},
		{"an interrupt without id", `[{"value":` + job + `}]`, []string{"placeholder-id=JOB/JOB"}},
		{"several", `[{"value":` + job + `,"id":"` + id1 + `"},{"value":"?","id":"` + id2 + `"}]`, []string{id1 + "=JOB/JOB", id2 + "=API/API"}},
		{"UiPath's output", `{"` + id2 + `":` + job + `,"` + id1 + `":{"message":"wait"}}`, []string{id2 + "=JOB/JOB", id1 + "=API/API"}},
		{"an object of models under any names", `{"first":` + job + `,"second":` + job + `}`, []string{"first=JOB/JOB", "second=JOB/JOB"}},
		{"a plain text", `"continue?"`, []string{"placeholder-id=API/API"}},
		{"a plain object", `{"question":"continue?","due-date":"x"}`, []string{"placeholder-id=API/API"}},
		{"with a schema for the answer", `[{"id":"age","value":1,"schema":{"type":"number"}}]`, []string{"age=API/API"}},
		{"a plain object with a value and a schema", `{"value":1,"schema":{}}`, []string{"placeholder-id=API/API"}},
		{"an object with a value and more", `{"value":1,"unit":"kg"}`, []string{"placeholder-id=API/API"}},
		{"a model alone", job, []string{"placeholder-id=JOB/JOB"}},
		{"a list of plain values", `["a",2,false]`, []string{"placeholder-id=API/API", "placeholder-id#1=API/API", "placeholder-id#2=API/API"}},
		{"a list of models", `[` + job + `,` + job + `]`, []string{"placeholder-id=JOB/JOB", "placeholder-id#1=JOB/JOB"}},
		{"equal ids (vector 32: an id belongs to the task)", `[{"value":1,"id":"a"},{"value":2,"id":"b"},{"value":3,"id":"a"}]`,
			[]string{"a=API/API", "b=API/API", "a#2=API/API"}},
		{"an id that looks like one told apart", `[{"value":1,"id":"a"},{"value":2,"id":"a#2"},{"value":3,"id":"a"}]`,
			[]string{"a=API/API", "a#2=API/API", "a#2#2=API/API"}},
		{"siblings in a list", `[{"value":[` + job + `,{"resume_time":"2026-07-06T12:00:00Z"}],"id":"` + id1 + `"}]`, []string{id1 + "=JOB/JOB,TIMER/TIMER"}},
		{"siblings in a map", `{"` + id1 + `":[{"title":"Approve","data":{}},{"until":"2026-07-06T12:00:00+02:00"}]}`, []string{id1 + "=TASK/TASK,TIMER/TIMER"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, ids(t, c.value)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Given a suspension with int-1 and int-2, then there is a trigger for each, in order, with the
// suspend value as its payload.
func TestVector11FirstSuspension(t *testing.T) {
	got, err := ParseInterrupts(json.RawMessage(`{"int-1":{"action":"approve_branch_1"},"int-2":{"action":"approve_branch_2"}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := []Interrupt{
		{ID: "int-1", Specs: []Spec{{Type: TypeAPI, Name: "API", Payload: json.RawMessage(`{"action":"approve_branch_1"}`)}}},
		{ID: "int-2", Specs: []Spec{{Type: TypeAPI, Name: "API", Payload: json.RawMessage(`{"action":"approve_branch_2"}`)}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Given three parallel branches, then there are three interrupts; given fewer, as after a partial
// resume, then fewer.
func TestVector29ParallelBranches(t *testing.T) {
	for n := 3; n > 0; n-- {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`{"value":{"message":"branch %d"},"id":%q}`, i, interruptID([]string{fmt.Sprint("branch:", i)})))
		}
		if got := ids(t, "["+strings.Join(list, ",")+"]"); len(got) != n {
			t.Errorf("expected %d interrupts, got %v", n, got)
		}
	}
}

// The vectors are xxhash.xxh3_128_hexdigest of Python's xxhash 4.1.0.
func TestInterruptIDIsTheHashOfTheNamespace(t *testing.T) {
	for want, ns := range map[string][]string{
		"99aa06d3014798d86001c324468d497f": {},
		"0ac57d59ea9417a9260d502aee171ede": {"parent:1", "child:2"},
		"c1d9838478c22eb7195a300b28752ed4": {"graph:" + strings.Repeat("x", 300)},
	} {
		if got := interruptID(ns); got != want {
			t.Errorf("%v: expected %s, got %s", ns, want, got)
		}
	}
}

func TestInterruptErrors(t *testing.T) {
	deep := strings.Repeat("[", 600) + strings.Repeat("]", 600)
	for _, c := range []struct{ name, value, want string }{
		{"null", `null`, "got null"},
		{"nothing", ``, "not valid JSON"},
		{"an empty list", `[]`, "got an empty list"},
		{"an empty object", `{}`, "got an empty object"},
		{"not JSON", `[1,`, "not valid JSON"},
		{"two documents", `1 2`, "not valid JSON"},
		{"too deep", deep, "nested deeper than 512 levels"},
		{"a number as id", `[{"value":1,"id":7}]`, "__interrupt__[0].id: expected a string, got a number"},
		{"a long id", `[{"value":1,"id":"` + strings.Repeat("x", 513) + `"}]`, "__interrupt__[0].id: expected an id of 1 to 512 bytes"},
		{"a namespace of numbers", `[{"value":1,"ns":[1]}]`, "__interrupt__[0].ns: expected an array of strings"},
		{"no siblings", `[{"value":1,"id":"a"},{"value":[],"id":"b"}]`, "__interrupt__[1].value: expected at least one thing to wait for, got an empty list"},
		{"a bad sibling", `[{"value":[1,{"resume_time":"2026-07-06T12:00:00"}],"id":"b"}]`, "__interrupt__[0].value: [1]: WaitUntil: resume_time: expected a time with its zone"},
		{"too many", "[" + strings.Repeat("1,", 1000) + "1]", "expected at most 1000 elements"},
		{"too many siblings", "[[" + strings.Repeat("1,", 999) + "1],2]", "expected at most 1000 triggers"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseInterrupts(json.RawMessage(c.value))
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "__interrupt__") {
				t.Errorf("expected an error with %q, got %v, %v", c.want, got, err)
			}
		})
	}
}

func TestThousandInterruptsAreAllowed(t *testing.T) {
	if got := ids(t, "["+strings.Repeat("1,", 999)+"1]"); len(got) != 1000 || got[999] != "placeholder-id#999=API/API" {
		t.Errorf("got %d, the last being %s", len(got), got[len(got)-1])
	}
}

func FuzzParseInterrupts(f *testing.F) {
	for _, seed := range []string{
		`[{"value":{"name":"P","input_arguments":{}},"id":"0123456789abcdef0123456789abcdef"}]`, `[{"value":1,"ns":["a"],"when":"during","resumable":true}]`,
		`{"int-1":[{"job":{"key":"k"}},{"until":"2026-07-06T12:00:00Z"}]}`, `{"type":"CreateEscalation","title":"x"}`, `[[1,[2]],"x",null]`, `{"value":[]}`, `[{},{}]`, "\x00",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := ParseInterrupts(data)
		if err != nil {
			return
		}
		seen, triggers := map[string]bool{}, 0
		for _, i := range got {
			if i.ID == "" || seen[i.ID] || len(i.Specs) == 0 {
				t.Fatalf("a bad id or no triggers: %+v", got)
			}
			seen[i.ID] = true
			for _, s := range i.Specs {
				if triggers++; !json.Valid(s.Payload) || s.Type == "" || s.Name == "" || (s.Type == TypeTimer) != (s.ResumeAt != nil) || !json.Valid(s.InputArguments()) {
					t.Fatalf("a bad trigger: %+v", s)
				}
			}
		}
		if len(got) == 0 || triggers > maxTriggers {
			t.Fatalf("%d interrupts, %d triggers", len(got), triggers)
		}
	})
}

func BenchmarkParseInterrupts(b *testing.B) {
	one := `{"value":{"name":"TestProcess","process_folder_path":"Shared","process_folder_key":null,"input_arguments":{"a":[1,2,3]},"attachments":null},"id":"0123456789abcdef0123456789abcdef"}`
	for name, value := range map[string]string{
		"one":      "[" + one + "]",
		"thousand": "[" + strings.Repeat(one+",", 999) + one + "]",
		"plain":    `[{"value":{"message":"Waiting for external completion","query":"?"},"id":"a"}]`,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(value)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseInterrupts(json.RawMessage(value)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
