package images

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/schemas"
)

// fetch is a shell function that sends the proxy of an allowlist the first line of a request.
const fetch = `fetch() { exec 3<>/dev/tcp/127.0.0.1/${HTTP_PROXY##*:}; printf "$1 HTTP/1.0\r\nHost: x\r\n\r\n" >&3; read -r -d "" answer <&3 || :; exec 3>&-; echo "$answer"; }
`

// Given an allowlist, then agent and tests reach the hosts on it by the proxy and nothing else, and
// what was refused is in the log of the segment and in the notes of the tests.
func TestAllowlist(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "reached") }))
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	script := fetch + `case "$(fetch "GET http://127.0.0.1:PORT/")" in *reached*) ;; *) exit 1;; esac
case "$(fetch "GET http://evil.test/")" in *403*) ;; *) exit 2;; esac
case "$(fetch "CONNECT 127.0.0.1:22")" in *403*) ;; *) exit 3;; esac
! (exec 4<>/dev/tcp/127.0.0.1/PORT) 2>/dev/null`
	script = strings.ReplaceAll(script, "PORT", port)
	for _, w := range []way{asImage, asPodman, asDocker} {
		t.Run(string(w), func(t *testing.T) {
			t.Parallel()
			k := newTask(t, w, plain+"[environment]\nnetwork_mode = \"allowlist\"\nallowed_hosts = [\"127.0.0.1\"]\n", "", script, script)
			r := k.passes()
			if details := string(r.Results[0].Result.Details); !strings.Contains(details, "network: evil.test was refused 1 times: the host is not among the allowed hosts") {
				t.Errorf("%s", details)
			}
			want := &schemas.RefusedConnections{Total: 2, Hosts: []schemas.RefusedHost{{Host: "127.0.0.1:22", Reason: "of the ports below 1024 only 80 and 443 can be reached", Connections: 1},
				{Host: "evil.test", Reason: "the host is not among the allowed hosts", Connections: 1}}}
			if diff := cmp.Diff(want, r.RefusedConnections); diff != "" {
				t.Error(diff)
			}
			logs, err := filepath.Glob(filepath.Join(k.dir, ".evalrun/runs/*/rollouts/*/*/*/network.jsonl"))
			if more, _ := filepath.Glob(filepath.Join(k.dir, ".evalrun/runs/*/rollouts/*/*/network.jsonl")); err == nil {
				logs = append(logs, more...)
			}
			if len(logs) != 1 {
				t.Fatalf("%v, %v", logs, err)
			}
			if log := testenv.ReadFile(t, filepath.Dir(logs[0]), "network.jsonl"); !strings.Contains(log, `{"host":"evil.test","reason":"the host is not among the allowed hosts","refused":1}`) || !strings.Contains(log, "127.0.0.1:22") {
				t.Errorf("%s", log)
			}
		})
	}
}

// Given a rollout that fails because its allowlist is too short, then whoever looks for the reason
// is told what agent and tests were refused.
func TestRefusedConnectionsAreSaid(t *testing.T) {
	t.Parallel()
	k := newTask(t, asImage, plain+"[environment]\nnetwork_mode = \"allowlist\"\nallowed_hosts = [\"127.0.0.1\"]\n", "",
		fetch+`fetch "GET http://evil.test/"; fetch "GET http://evil.test/"; fetch "CONNECT other.test:443"`, fetch+`fetch "CONNECT pypi.test:443"; reward none; exit 1`)
	out := k.evalrun(3, "run", "-o", "results.json", "--isolation", k.isolation, "--agent", "oracle", "task")
	refused := "3 connections were refused: evil.test (2 times), other.test:443"
	if !strings.Contains(out, "    "+refused+"\n") {
		t.Error(out)
	}
	r := k.results()
	if r.Error == nil || !strings.Contains(r.Error.Message, "; 1 connection was refused: pypi.test:443") || r.RefusedConnections.String() != refused {
		t.Errorf("%+v, %+v", r.Error, r.RefusedConnections)
	}
	if junit := k.evalrun(0, "report", "results.json", "--format", "junit"); !strings.Contains(junit, refused) {
		t.Error(junit)
	}
}
