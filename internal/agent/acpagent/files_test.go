package acpagent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/sandbox"

	"github.com/evalrun/evalrun/internal/testenv"
)

func TestFilesAndTerminalsOfTheClient(t *testing.T) {
	for _, isolation := range []string{sandbox.IsolationProcess, sandbox.IsolationBwrap} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			r := newRollout(t)
			if isolation == sandbox.IsolationBwrap {
				r.inBwrap()
			}
			SettingsOf(r.entry).FS, SettingsOf(r.entry).Terminal = true, true
			if err := os.WriteFile(filepath.Join(r.dir, "outside"), []byte("the store"), 0o600); err != nil {
				t.Fatal(err)
			}
			cwd := r.sandbox.Path("/app")
			var prompt strings.Builder
			for _, request := range []string{
				`fs/write_text_file {"path":%q,"content":"written"} in`,
				`fs/read_text_file {"path":%q} in`,
				`fs/read_text_file {"path":%q} ../outside`,
				`fs/write_text_file {"path":%q,"content":"x"} ../outside`,
				`fs/read_text_file {"path":%q} link`,
				`fs/write_text_file {"path":%q,"content":"x"} link`,
				`fs/write_text_file {"path":%q,"content":"x"} links/new`,
				`terminal/create {"command":"sh","cwd":%q,"args":["-c","pwd; echo $OWN; exit 3"],"env":[{"name":"OWN","value":"mine"}]} .`,
				`terminal/create {"command":"sleep","cwd":%q,"args":["600"]} .`,
				`terminal/wait_for_exit {"terminalId":"term-1","_":%q} .`,
				`terminal/output {"terminalId":"term-1","_":%q} .`,
				`terminal/output {"terminalId":"term-2","_":%q} .`,
				`terminal/create {"command":"no-such-program","cwd":%q} .`,
				`terminal/create {"command":"sleep","cwd":%q} ..`,
				`terminal/kill {"terminalId":"term-2","_":%q} .`,
				`terminal/wait_for_exit {"terminalId":"term-2","_":%q} .`,
				`terminal/create {"command":"sleep","cwd":%q,"args":["600"]} .`,
			} {
				at := strings.LastIndexByte(request, ' ')
				fmt.Fprintf(&prompt, "[[REQUEST "+request[:at]+"]] ", filepath.Join(cwd, request[at+1:]))
			}
			link(t, filepath.Join(r.dir, "outside"), r.cwd, "link")
			link(t, r.dir, r.cwd, "links")
			out := r.prompt(prompt.String())
			got := strings.Split(strings.TrimSpace(content(t, out)), "\n")
			want := []string{
				`{}`, `{"content":"written"}`, `-32602`, `-32602`, `-32602`, `-32602`, `-32602`,
				`{"terminalId":"term-1"}`, `{"terminalId":"term-2"}`, `{"exitCode":3,"signal":null}`, `"output":"` + cwd + `\nmine\n"`, `"exitStatus":null`,
				`no-such-program`, `-32602`, `{}`, `signal`, `{"terminalId":"term-3"}`,
			}
			if len(got) != len(want) {
				t.Fatalf("got %q", got)
			}
			for i := range want {
				if !strings.Contains(got[i], want[i]) {
					t.Errorf("got  %s\nwant %s", got[i], want[i])
				}
			}
			if text := testenv.ReadFile(t, r.dir, "outside"); text != "the store" {
				t.Errorf("the file outside is now %q", text)
			}
			if names := entries(t, r.dir); slices.Contains(names, "new") {
				t.Errorf("the folder outside has %v", names)
			}
			if strings.Contains(r.sent(0, "client", "clientCapabilities")[0], `"terminal":false`) {
				t.Error("terminals were not offered")
			}
		})
	}
}

func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	found, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range found {
		names = append(names, e.Name())
	}
	return names
}

func TestFilesOutsideTheWorkspace(t *testing.T) {
	t.Parallel()
	r := newRollout(t)
	SettingsOf(r.entry).FS = true
	if got := content(t, r.prompt("[[FAULT outside]]")); strings.Count(got, "error") != 3 || strings.Contains(got, "root:") {
		t.Errorf("got %s", got)
	}
	if caps := r.sent(0, "client", "clientCapabilities")[0]; !strings.Contains(caps, `"readTextFile":true`) || !strings.Contains(caps, `"terminal":false`) {
		t.Errorf("got %s", caps)
	}
}

func TestATerminalDoesNotSeeTheKeyOfTheModel(t *testing.T) {
	t.Parallel()
	r := newRollout(t)
	proxy, _ := model(t, 200, nil)
	r.useModel(proxy)
	SettingsOf(r.entry).Terminal = true
	seg := r.segment(`[[REQUEST terminal/create {"command":"env"}]] [[REQUEST terminal/wait_for_exit {"terminalId":"term-1"}]] [[REQUEST terminal/output {"terminalId":"term-1"}]]`)
	seg.Env = []string{"PROVIDER_KEY=" + providerKey}
	if got := content(t, r.run(seg)); !strings.Contains(got, "HOME="+r.home) || strings.Contains(got, "MODEL_KEY") || strings.Contains(got, "PROVIDER_KEY") {
		t.Errorf("got %s", got)
	}
}
