package images

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

// Given an evalrun that is killed while it fills a volume of a daemon with an agent's installation, and then
// two at once that need it, then both agents work, none can change the installation, and the daemon has one
// whole volume of it and nothing of the killed process. The next content has a volume of its own.
func TestInstallationInADaemon(t *testing.T) {
	t.Parallel()
	const change = `! echo x 2>/dev/null >/run/evalrun/host/x && ! rm -r /run/evalrun/host 2>/dev/null && ! mv /run/evalrun/host /run/evalrun/x 2>/dev/null`
	k := agentTask(t, "", "", `[[RUN `+change+` && : >/opt/kept]] [[SAY done]]`, `[ -e /opt/kept ]; `+change)
	dir := filepath.Join(t.TempDir(), "installed")
	program := filepath.Join(dir, "bin", "acp-agent")
	text := testenv.ReadFile(t, filepath.Join(programs, "acp-agent"))
	for _, err := range []error{os.MkdirAll(filepath.Dir(program), 0o755), os.WriteFile(program, []byte(text), 0o755), //nolint:gosec // a program
		os.WriteFile(filepath.Join(dir, "large"), bytes.Repeat([]byte("x"), 16<<20), 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	k.write("../agent.json", `{"name": "a", "type": "acp", "command": ["`+program+`"]}`)
	run := func(id string) []string {
		return []string{"run", "--isolation", "docker", "--run-id", id, "-o", id + ".json", "--agent", "agent.json", "task"}
	}

	usual := k.env
	at, name := stopsInFill(t)
	k.env = []string{"DOCKER_HOST=tcp://" + at}
	killed := k.command(run("killed")...)
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- killed.Wait() }()
	var begun string
	select {
	case begun = <-name:
		_ = killed.Process.Kill()
		<-ended
	case err := <-ended:
		t.Fatalf("no volume was filled: %v\n%s", err, k.log())
	}
	k.env = usual

	var both sync.WaitGroup
	for _, id := range []string{"first", "second"} {
		both.Go(func() {
			if out, err := k.command(run(id)...).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s\n%s", id, err, out, k.log())
			}
		})
	}
	both.Wait()
	mark := begun[:strings.LastIndex(begun, "-")]
	found, err := client(t).ListVolumes(t.Context(), "dev.evalrun.programs")
	if err != nil {
		t.Fatal(err)
	}
	whole := found[mark]["dev.evalrun.whole"]
	for volume := range found {
		if strings.HasPrefix(volume, mark) && volume != mark && volume != whole {
			t.Errorf("the volume %s is left beside %s", volume, whole)
		}
	}
	if _, ok := found[whole]; !ok || whole == begun {
		t.Errorf("the whole volume is %q of %v", whole, found)
	}
	if left := k.containers(); len(left) > 0 {
		t.Errorf("containers are left: %v", left)
	}
}

var filled = regexp.MustCompile(`evalrun-programs-[0-9a-f]{16}-[0-9a-z]+`)

// stopsInFill leads to the daemon, until the first 8 MB of a volume's content have been sent there: then it says the
// name of the volume, and nothing more gets there.
func stopsInFill(t *testing.T) (at string, name <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	socket, names := strings.TrimPrefix(theDaemon(t).Host, "unix://"), make(chan string, 1)
	var volume atomic.Pointer[string]
	var passing sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); passing.Wait() })
	passing.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("unix", socket)
			if err != nil {
				_ = in.Close()
				continue
			}
			passing.Go(func() { _, _ = io.Copy(in, out); _ = in.Close() })
			passing.Go(func() {
				defer func() { _ = out.Close() }()
				sent, buffer := 0, make([]byte, 32<<10)
				for {
					n, err := in.Read(buffer)
					if err != nil {
						return
					}
					if made := filled.Find(buffer[:n]); made != nil {
						name := string(made)
						volume.Store(&name)
						sent = 0
					}
					if sent += n; sent > 8<<20 && volume.Load() != nil {
						names <- *volume.Load()
						_, _ = io.Copy(io.Discard, in) // until evalrun ends
						return
					}
					if _, err := out.Write(buffer[:n]); err != nil {
						return
					}
				}
			})
		}
	})
	return l.Addr().String(), names
}
