package acpagent

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/testenv"
)

// environment is what the agent's process has in its environment, by the name.
func environment(t *testing.T, said string) map[string]string {
	t.Helper()
	env := map[string]string{}
	for line := range strings.Lines(said) {
		if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok {
			env[name] = value
		}
	}
	return env
}

func TestTheEnvironmentOfAnAgent(t *testing.T) {
	t.Setenv("FROM_THE_PARENT", "must not be seen")
	t.Setenv("PROVIDER_KEY", providerKey)
	for _, isolation := range []string{sandbox.IsolationProcess, sandbox.IsolationBwrap} {
		t.Run(isolation, func(t *testing.T) {
			r := newRollout(t)
			if isolation == sandbox.IsolationBwrap {
				r.inBwrap() // without a network: the model is reached through a socket
				SettingsOf(r.entry).Visible = []string{filepath.Dir(must(os.Executable()))}
			}
			proxy, seen := model(t, http.StatusOK, nil)
			r.useModel(proxy)
			r.opts.Redact = redacting("a-passed-secret")
			r.setenv("EXPANDED", "<${FROM_RESOLVE}|${MISSING:-default}|$HOME>")
			r.setenv("CONFIG", `{"home":"{home}","url":"{modelURL}/v1"}`)
			r.opts.Resolve = func(name string) (string, bool) {
				v, ok := map[string]string{"PROVIDER_KEY": providerKey, "FROM_RESOLVE": "resolved"}[name]
				return v, ok
			}
			SettingsOf(r.entry).Files = map[string]string{".agent/config.toml": `key = "{modelKey}" model = "{model}"`, "left-out": "{nonsense}"}
			seg := r.segment("[[RUN env]] [[RUN cat ~/.agent/config.toml; cat ~/left-out; test -d $TMPDIR && echo tmp]] [[RUN " + askFixture(t) + "]]")
			seg.Env = []string{"PASSED=a-passed-secret", "PROVIDER_KEY=" + providerKey, "EXPANDED=by the run"}
			seg.Sandbox.Env = []string{"OF_THE_PLACE=place", "EXPANDED=by the place"}
			out := r.run(seg)
			if content(t, out); out.Info.Model == nil || out.Info.Model.Main.Calls != 1 {
				t.Fatalf("got %+v: %q", out.Info, r.said(0))
			}
			if key := <-seen.keys; key != "Bearer "+providerKey {
				t.Errorf("the provider was asked with %q", key)
			}
			said := strings.Join(r.said(0), "")
			env := environment(t, said)
			home := seg.Sandbox.Home
			for name, want := range map[string]string{
				"EXPANDED": "<resolved|default|$HOME>", "OF_THE_PLACE": "place", "PASSED": "[redacted:SECRET]", "MODEL_NAME": "small-1", "HOME": home,
				"XDG_CONFIG_HOME": home + "/.config", "TMPDIR": home + "/tmp", "MODEL_KEY": "[redacted:MODEL_TOKEN]", sandbox.MarkerVar: seg.Marker,
				agent.TraceparentVar: seg.Traceparent(),
				"CONFIG":             `{"home":"` + home + `","url":"` + env["MODEL_URL"] + `/v1"}`,
			} {
				if env[name] != want {
					t.Errorf("%s is %q, want %q", name, env[name], want)
				}
			}
			known := []string{"PATH", "LANG", "TERM", "NO_COLOR", "HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "TMPDIR", sandbox.MarkerVar, agent.TraceparentVar,
				"PASSED", "OF_THE_PLACE", "EXPANDED", "CONFIG", "MODEL_URL", "MODEL_KEY", "MODEL_NAME",
				"PWD", "OLDPWD", "SHLVL", "_"} // the last four are the shell's
			for name := range env {
				if !slices.Contains(known, name) && !strings.HasPrefix(name, "key ") {
					t.Errorf("the agent has %s=%s", name, env[name])
				}
			}
			for _, want := range []string{`key = "[redacted:MODEL_TOKEN]" model = "small-1"`, "{nonsense}tmp", "200 OK"} {
				if !strings.Contains(said, want) {
					t.Errorf("expected %q in %q", want, said)
				}
			}
			for _, name := range []string{FileWire, record.FileTrajectory, FileModel} {
				text := testenv.ReadFile(t, seg.Dir, name)
				if strings.Contains(text, providerKey) || strings.Contains(text, "a-passed-secret") {
					t.Errorf("%s has a secret", name)
				}
			}
			if token := testenv.ReadFile(t, r.home, ".agent/config.toml")[len(`key = "`):]; strings.Contains(testenv.ReadFile(t, seg.Dir, FileWire), token[:strings.IndexByte(token, '"')]) {
				t.Error("the wire has the token")
			}
		})
	}
}

func TestWithoutAModelThePlaceholdersAreLeftOut(t *testing.T) {
	t.Parallel()
	r := newRollout(t)
	r.useModel(provider{nil, "http://127.0.0.1:1"})
	SettingsOf(r.entry).Files = map[string]string{"config": "{modelKey}", "other": "{home}"}
	env := environment(t, content(t, r.prompt("[[RUN env; test -e ~/config || echo NO_CONFIG=1; echo OTHER=$(cat ~/other)]]")))
	if _, ok := env["MODEL_KEY"]; ok || env["NO_CONFIG"] != "1" || env["OTHER"] != r.home {
		t.Errorf("got %v", env)
	}
}

func TestAModelThatIsNotConfiguredRight(t *testing.T) {
	for url, want := range map[string]string{"${NO_SUCH_URL}": "${NO_SUCH_URL}, which is not set", "ftp://x": "expected http(s)"} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			r := newRollout(t)
			proxy, _ := model(t, http.StatusOK, nil)
			r.useModel(proxy)
			r.entry.Model.URL = url
			mustFault(t, r.prompt("x"), fault.Start, want)
		})
	}
}
