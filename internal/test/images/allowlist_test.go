package images

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

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
	script := `fetch() { exec 3<>/dev/tcp/127.0.0.1/${HTTP_PROXY##*:}; printf "$1 HTTP/1.0\r\nHost: x\r\n\r\n" >&3; read -r -d "" answer <&3 || :; exec 3>&-; echo "$answer"; }
case "$(fetch "GET http://127.0.0.1:PORT/")" in *reached*) ;; *) exit 1;; esac
case "$(fetch "GET http://evil.test/")" in *403*) ;; *) exit 2;; esac
case "$(fetch "CONNECT 127.0.0.1:22")" in *403*) ;; *) exit 3;; esac
! (exec 4<>/dev/tcp/127.0.0.1/PORT) 2>/dev/null`
	script = strings.ReplaceAll(script, "PORT", port)
	for _, w := range []way{asImage, asPodman} {
		t.Run(string(w), func(t *testing.T) {
			t.Parallel()
			k := newTask(t, w, plain+"[environment]\nnetwork_mode = \"allowlist\"\nallowed_hosts = [\"127.0.0.1\"]\n", "", script, script)
			r := k.passes()
			if details := string(r.Results[0].Result.Details); !strings.Contains(details, "network: evil.test was refused 1 times: the host is not among the allowed hosts") {
				t.Errorf("%s", details)
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
