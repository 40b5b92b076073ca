package function

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/testenv"
)

// shell is a function agent that is a shell script.
func shell(script string) agent.Entry { return FromCommand([]string{"sh", "-c", script}) }

// with is an entry with settings.
func with(e agent.Entry, s Settings) agent.Entry {
	e.Settings = &s
	return e
}

func segment(t testing.TB) agent.Segment {
	dir := t.TempDir()
	return agent.Segment{RolloutID: "rollout-1", Marker: "store/rollout-1", Number: 1, Attempt: 1, Input: json.RawMessage(`{"q":1}`),
		Workspace: testenv.Mkdir(t, dir, "workspace"), Dir: testenv.Mkdir(t, dir, "segment"), BaseDir: testenv.Mkdir(t, dir, "base")}
}

func runWith(t *testing.T, ctx context.Context, e agent.Entry, opts agent.Options, seg agent.Segment) agent.Outcome {
	t.Helper()
	a := New(e, opts)
	out, err := a.Run(ctx, seg)
	if err != nil {
		t.Fatal(err)
	}
	set := 0
	for _, is := range []bool{out.Output != nil, out.Interrupts != nil, out.Fault != nil} {
		if is {
			set++
		}
	}
	if set != 1 {
		t.Fatalf("expected one of output, interrupts and fault, got %+v", out)
	}
	return out
}

func run(t *testing.T, e agent.Entry, seg agent.Segment) agent.Outcome {
	t.Helper()
	return runWith(t, t.Context(), e, agent.Options{}, seg)
}

func TestAgentReadsTheEnvelope(t *testing.T) {
	seg := segment(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	t.Run("of the first segment", func(t *testing.T) {
		got := run(t, shell("cat"), seg).Output
		want := `{"input":{"q":1},"resume":null,"deliveries":null,"rolloutId":"rollout-1","threadId":"rollout-1","workspace":"` + seg.Workspace + `"}`
		if string(got) != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
	t.Run("when it is resumed", func(t *testing.T) {
		seg := seg
		seg.Resume = map[string]json.RawMessage{"i1": json.RawMessage(`{"big":12345678901234567890,"html":"<&>"}`)}
		seg.Deliveries = map[string]agent.Delivery{"i1": {TriggerID: "t1", Status: "successful", Payload: seg.Resume["i1"], ReceivedAt: at}}
		got := run(t, shell("cat"), seg).Output
		for _, want := range []string{
			`"resume":{"i1":{"big":12345678901234567890,"html":"<&>"}}`,
			`"deliveries":{"i1":{"triggerId":"t1","status":"successful","payload":{"big":12345678901234567890,"html":"<&>"},"error":null,"receivedAt":"2026-01-02T03:04:05Z"}}`,
		} {
			if !strings.Contains(string(got), want) {
				t.Errorf("got %s\nwithout %s", got, want)
			}
		}
	})
}

func TestAgentThatReadsTheBareInput(t *testing.T) {
	e := with(shell("cat"), Settings{Stdin: StdinInput})
	seg := segment(t)
	if got := run(t, e, seg).Output; string(got) != `{"q":1}` {
		t.Errorf("got %s", got)
	}
	seg.Resume = map[string]json.RawMessage{}
	if out := run(t, e, seg); out.Fault == nil || out.Fault.Category != fault.Unresumable {
		t.Errorf("resumed: got %+v", out)
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("EVALRUN_STORE", "/store")
	t.Setenv("FROM_OUTSIDE", "outside")
	t.Setenv("OVERRIDDEN", "outside")
	e := shell(`test -z "$EVALRUN_STORE" && printf '["%s","%s","%s","%s","%s","%s","%s"]' "$FROM_OUTSIDE" "$OVERRIDDEN" "$MINE" "$LAST" \
		"$EVALRUN_ROLLOUT" "$EVALRUN_TRACE_FILE" "$EVALRUN_WORKSPACE"`)
	e.Env = map[string]string{"OVERRIDDEN": "entry", "MINE": "<${SECRET}|${SECRET}|$HOME>", "LAST": "entry"}
	seg := segment(t)
	seg.Env = []string{"LAST=segment"}
	opts := agent.Options{Resolve: func(name string) (string, bool) { return "s3cret", name == "SECRET" }}
	out := runWith(t, t.Context(), e, opts, seg)
	want := []string{"outside", "entry", "<s3cret|s3cret|$HOME>", "segment", "store/rollout-1", filepath.Join(seg.Dir, "trace.jsonl"), seg.Workspace}
	var got []string
	if err := json.Unmarshal(out.Output, &got); err != nil {
		t.Fatalf("%v: %s, %v", err, out.Output, out.Fault)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWorkingDirectory(t *testing.T) {
	seg := segment(t)
	testenv.Mkdir(t, seg.BaseDir, "sub")
	elsewhere, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	base, err := filepath.EvalSymlinks(seg.BaseDir)
	if err != nil {
		t.Fatal(err)
	}
	for cwd, want := range map[string]string{"": base, "sub": base + "/sub", elsewhere: elsewhere} {
		e := shell(`printf '"%s"' "$(pwd -P)"`)
		e.Cwd = cwd
		if got := run(t, e, seg).Output; string(got) != `"`+want+`"` {
			t.Errorf("%q: got %s", cwd, got)
		}
	}
}

func TestProgramIsFoundAsInTheAgentsOwnShell(t *testing.T) {
	seg := segment(t)
	script := filepath.Join(testenv.Mkdir(t, seg.BaseDir, "bin"), "tool")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, e := range []agent.Entry{
		{Command: []string{script}},
		{Command: []string{"bin/tool"}},
		{Command: []string{"./tool"}, Cwd: "bin"},
		{Command: []string{"tool"}, Env: map[string]string{"PATH": "bin:/usr/bin:/bin"}},
	} {
		e.Type, e.Settings = Name, &Settings{}
		if out := run(t, e, seg); string(out.Output) != "1" {
			t.Errorf("%v: got %+v", e, out.Fault)
		}
	}
}

func TestSuspension(t *testing.T) {
	const langgraph = `{"x":1,"__interrupt__":[{"value":{"name":"TestProcess","input_arguments":{"a":1},"process_folder_path":"Shared"},"id":"0123456789abcdef0123456789abcdef"}]}`
	out := run(t, shell("echo '"+langgraph+"'"), segment(t))
	if len(out.Interrupts) != 1 || out.Interrupts[0].ID != "0123456789abcdef0123456789abcdef" || out.Interrupts[0].Specs[0].Process != "TestProcess" {
		t.Errorf("got %+v", out)
	}
	if !slices.Equal(out.Files, []string{"output.json"}) {
		t.Errorf("got files %q", out.Files)
	}

	for document, want := range map[string]string{
		`{"a":1,"__interrupt__":[],"b":{"__interrupt__":[1]}}`: `{"a":1,"b":{"__interrupt__":[1]}}`,
		`{"__interrupt__":null}`:                               `{}`,
		`{"\u005f_interrupt__":null,"k<":[1, 2]}`:              `{"k<":[1, 2]}`,
		`{"says":"__interrupt__"}`:                             `{"says":"__interrupt__"}`,
		`["__interrupt__"]`:                                    `["__interrupt__"]`,
	} {
		e := FromCommand([]string{"printf", "%s", document})
		if got := run(t, e, segment(t)).Output; string(got) != want {
			t.Errorf("%s: got %s, want %s", document, got, want)
		}
	}
}

func TestFaults(t *testing.T) {
	lastLine := func(e agent.Entry) agent.Entry { return with(e, Settings{Output: OutputLastLine}) }
	toFile := func(e agent.Entry) agent.Entry { return with(e, Settings{Output: OutputFile}) }
	bare := func(e agent.Entry) agent.Entry { return with(e, Settings{Stdin: StdinInput}) }
	withEnv := func(e agent.Entry, name, value string) agent.Entry { e.Env = map[string]string{name: value}; return e }
	for _, tt := range []struct {
		name     string
		entry    agent.Entry
		category fault.Category
		says     string
	}{
		{"exit status", shell("echo '{}'; echo first >&2; echo 'it broke' >&2; exit 3"), fault.Exit, "exit status 3; stderr ends with:\nfirst\nit broke"},
		{"signal", shell("kill -KILL $$"), fault.Exit, "signal: killed"},
		{"nothing", shell("echo hint >&2"), fault.NoOutput, "nothing on stdout; stderr ends with:\nhint"},
		{"white space", shell("echo; echo"), fault.NoOutput, "white space"},
		{"two documents", shell("echo '{}'; echo '[1]'"), fault.MultipleDocuments, "line 2, column 1"},
		{"log line first", shell("echo 'loading model'; echo '{}'"), fault.InvalidOutput, `line 1, column 1, which begins "loading model\n{}\n"`},
		{"log line after", shell("echo '{}'; echo 'all done'"), fault.InvalidOutput, `at line 2, column 1 there is "all done\n"`},
		{"cut off", shell(`printf '{"a":[1,'`), fault.InvalidOutput, "unexpected end of JSON input at line 1, column 8"},
		{"not a number", shell(`echo '{"a": NaN}'`), fault.InvalidOutput, "NaN is not a JSON value at line 1, column 7"},
		{"not UTF-8", shell(`printf '{"a":"\377"}'`), fault.InvalidUTF8, "byte 0xff at line 1, column 7"},
		{"too deep", shell(`printf '%0600d' 0 | tr 0 '['`), fault.TooDeep, "deeper than 512 levels at line 1, column 513"},
		{"invalid interrupt", shell(`echo '{"__interrupt__":[{"value":[],"id":"1"}]}'`), fault.InvalidInterrupt, "__interrupt__: "},
		{"interrupt of a bare agent", bare(shell(`echo '{"__interrupt__":[{"value":1,"id":"1"}]}'`)), fault.Unresumable, `"stdin": "envelope"`},
		{"last line is no JSON", lastLine(shell("echo '{}'; echo bye")), fault.InvalidOutput, `begins "bye"`},
		{"no file", toFile(shell("echo '{}'")), fault.NoOutput, "EVALRUN_OUTPUT_FILE"},
		{"link in place of the file", toFile(shell(`ln -s /etc/passwd "$EVALRUN_OUTPUT_FILE"`)), fault.NoOutput, "EVALRUN_OUTPUT_FILE"},
		{"FIFO in place of the file", toFile(shell(`mkfifo "$EVALRUN_OUTPUT_FILE"`)), fault.NoOutput, "EVALRUN_OUTPUT_FILE"},
		{"no such command", withEnv(FromCommand([]string{"no-such-program"}), "PATH", "/bin:/nowhere"), fault.Start, `there is no program "no-such-program" in PATH (folders: 2)`},
		{"no such file", FromCommand([]string{"./agent"}), fault.Start, "/base/agent, which does not exist"},
		{"a folder", FromCommand([]string{"/tmp"}), fault.Start, "is a directory"},
		{"not executable", FromCommand([]string{"/etc/passwd"}), fault.Start, "is not executable"},
		{"no such folder", agent.Entry{Type: Name, Command: []string{"true"}, Cwd: "nowhere", Settings: &Settings{}}, fault.Start, "working directory"},
		{"unknown variable", withEnv(shell("echo 1"), "TOKEN", "a${NO_SUCH}b"), fault.Start, "TOKEN needs ${NO_SUCH}, which is not set"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			opts := agent.Options{Resolve: func(string) (string, bool) { return "", false }}
			out := runWith(t, t.Context(), tt.entry, opts, segment(t))
			if out.Fault == nil || out.Fault.Category != tt.category || !strings.Contains(out.Fault.Message, tt.says) {
				t.Errorf("got %+v\nwant %s with %q", out.Fault, tt.category, tt.says)
			}
		})
	}
}

func TestScriptThatTheSystemCannotStart(t *testing.T) {
	for content, want := range map[string]string{
		"#!/no/such/interpreter\n": "the program that its first line names",
		"echo 1\n":                 "#!/bin/sh",
	} {
		seg := segment(t)
		if err := os.WriteFile(filepath.Join(seg.BaseDir, "agent"), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
		out := run(t, FromCommand([]string{"./agent"}), seg)
		if out.Fault == nil || out.Fault.Category != fault.Start || !strings.Contains(out.Fault.Message, want) {
			t.Errorf("%q: got %+v", content, out.Fault)
		}
	}
}

func TestOutputModes(t *testing.T) {
	lastLine := with(shell("echo loading; echo '{\"a\":1}'; echo; echo '  '"), Settings{Output: OutputLastLine})
	file := with(shell(`echo loading; echo '{"a":1}' > "$EVALRUN_OUTPUT_FILE"`), Settings{Output: OutputFile})
	named := with(file, Settings{Output: OutputFile, OutputFile: "answer.json"})
	for name, e := range map[string]agent.Entry{"last-line": lastLine, "file": file, "named file": named} {
		seg := segment(t)
		out := run(t, e, seg)
		if string(out.Output) != `{"a":1}` || !slices.Equal(out.Files, []string{"output.json", "stdout.log"}) {
			t.Errorf("%s: got %s, %q, %v", name, out.Output, out.Files, out.Fault)
		}
		if got := strings.TrimSpace(testenv.ReadFile(t, seg.Dir, "output.json")); got != `{"a":1}` {
			t.Errorf("%s: output.json is %q", name, got)
		}
		if got := testenv.ReadFile(t, seg.Dir, "stdout.log"); !strings.HasPrefix(got, "loading\n") {
			t.Errorf("%s: stdout.log is %q", name, got)
		}
	}
}

func TestFilesOfASegment(t *testing.T) {
	t.Run("a silent agent leaves only its document", func(t *testing.T) {
		seg := segment(t)
		out := run(t, shell("echo ' {} '"), seg)
		if !slices.Equal(out.Files, []string{"output.json"}) || testenv.ReadFile(t, seg.Dir, "output.json") != " {} \n" {
			t.Errorf("got %q", out.Files)
		}
		entries, err := os.ReadDir(seg.Dir)
		if err != nil || len(entries) != 1 {
			t.Errorf("got %v, %v", entries, err)
		}
	})
	t.Run("a talkative one leaves all", func(t *testing.T) {
		seg := segment(t)
		out := run(t, shell(`echo log >&2; echo '{"name":"span"}' >> "$EVALRUN_TRACE_FILE"; echo 'no JSON'; exit 1`), seg)
		if want := []string{"output.json", "stderr.log", "trace.jsonl"}; !slices.Equal(out.Files, want) {
			t.Errorf("got %q", out.Files)
		}
		if got := testenv.ReadFile(t, seg.Dir, "stderr.log"); got != "log\n" {
			t.Errorf("stderr.log is %q", got)
		}
	})
}

// upper stands for a redaction: it holds everything back until it is closed.
type upper struct {
	w   io.Writer
	buf bytes.Buffer
}

func (u *upper) Write(p []byte) (int, error) { return u.buf.Write(p) }

func (u *upper) Close() error {
	_, err := u.w.Write(bytes.ReplaceAll(u.buf.Bytes(), []byte("s3cret"), []byte("[redacted]")))
	return err
}

func TestRedactionStandsBeforeEverythingThatIsWritten(t *testing.T) {
	opts := agent.Options{Redact: func(w io.Writer) io.WriteCloser { return &upper{w: w} }}
	for _, mode := range []OutputMode{OutputStdout, OutputLastLine, OutputFile} {
		seg := segment(t)
		e := shell(`echo s3cret | tee "$EVALRUN_TRACE_FILE" >&2; test -z "$EVALRUN_OUTPUT_FILE" || exec > "$EVALRUN_OUTPUT_FILE"; echo s3cret`)
		e.Settings = &Settings{Output: mode}
		out := runWith(t, t.Context(), e, opts, seg)
		if out.Fault == nil || strings.Contains(out.Fault.Message, "s3cret") || strings.Count(out.Fault.Message, "[redacted]") != 2 {
			t.Errorf("%s: got %+v", mode, out.Fault)
		}
		entries, err := os.ReadDir(seg.Dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			if got := strings.TrimSpace(testenv.ReadFile(t, seg.Dir, entry.Name())); got != "[redacted]" {
				t.Errorf("%s: %s: %q", mode, entry.Name(), got)
			}
		}
		if len(entries) != len(out.Files) || len(entries) < 3 {
			t.Errorf("%s: got %v in the folder, %q", mode, entries, out.Files)
		}
	}
}

func TestLogThatCannotBeWrittenIsAnErrorOfOurs(t *testing.T) {
	a := New(shell("echo 1; echo log >&2"), agent.Options{})
	seg := segment(t)
	seg.Dir = filepath.Join(seg.Dir, "nowhere")
	if out, err := a.Run(t.Context(), seg); err == nil || !strings.Contains(err.Error(), "stderr.log") {
		t.Errorf("got %+v, %v", out, err)
	}
}
