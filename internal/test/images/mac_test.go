package images

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

// macSession finds the commands of a Mac's user in the docs.
var macSession = regexp.MustCompile(`(?s)<!-- session of a Mac -->\n(.*?)<!-- end -->`)

// hiddenPrograms are those that a Mac has not.
var hiddenPrograms = regexp.MustCompile(`^(bwrap|podman.*|buildah|skopeo|docker.*|runc|crun)$`)

// Given a machine with neither bubblewrap nor podman nor the docker command, and a daemon that shares
// nothing with it, then the commands of the docs do what the docs say: a task runs in its image, and an
// approval is waited for.
func TestSessionOfAMac(t *testing.T) {
	t.Parallel()
	testenv.NeedDocker(t)
	if err := build(); err != nil {
		t.Fatal(err)
	}
	importAs(t, "debian:bookworm-slim")
	bin, store := t.TempDir(), t.TempDir()
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		entries, _ := os.ReadDir(dir) // a folder of PATH need not be there
		for _, e := range entries {
			if !hiddenPrograms.MatchString(e.Name()) {
				_ = os.Symlink(filepath.Join(dir, e.Name()), filepath.Join(bin, e.Name())) // the first of a name counts
			}
		}
	}
	top := testenv.Top(t)
	page := macSession.FindStringSubmatch(testenv.ReadFile(t, top, "docs/docker.md"))
	if page == nil {
		t.Fatal("docs/docker.md has no session of a Mac")
	}
	trigger, commands := "", 0
	for line := range strings.Lines(page[1]) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "evalrun ")
		if !ok {
			continue
		}
		commands++
		cmd := exec.Command(filepath.Join(programs, "evalrun"), strings.Fields(strings.ReplaceAll(command, "TRIGGER", trigger))...)
		cmd.Dir = top
		cmd.Env = append(os.Environ(), "PATH="+bin, "EVALRUN_STORE="+filepath.Join(store, ".evalrun"),
			"EVALRUN_IMAGES="+filepath.Join(store, "images"), "DOCKER_HOST="+theDaemon(t).Host)
		said, err := cmd.CombinedOutput()
		want := 0
		if strings.Contains(command, "--run-id approval") {
			want = 75
		}
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Fatalf("evalrun %s: %v, want exit code %d\n%s", command, err, want, said)
		}
		out := string(said)
		switch {
		case strings.HasPrefix(command, "doctor") && !strings.Contains(out, "docker, because not image: bubblewrap is not installed"),
			strings.HasSuffix(command, "fixtures/docker") && !strings.Contains(out, "tasks run in docker, because this machine lacks what comes first: image: bubblewrap is not installed"),
			strings.HasPrefix(command, "resume") && !strings.Contains(out, "1 passed"):
			t.Errorf("evalrun %s:\n%s", command, out)
		case strings.HasPrefix(command, "triggers"):
			if found := regexp.MustCompile(`(?m)^(\S+) .*TASK`).FindStringSubmatch(out); found != nil {
				trigger = found[1]
			}
		}
	}
	if commands < 7 {
		t.Errorf("the docs have %d commands", commands)
	}
}

// importAs makes an image of the small root in the daemon, with a name of a public one.
func importAs(t *testing.T, name string) {
	t.Helper()
	tar := exec.Command("tar", "-C", testenv.SmallRoot(t), "-cf", "-", ".")
	archive, err := tar.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := tar.Start(); err != nil {
		t.Fatal(err)
	}
	socket := strings.TrimPrefix(theDaemon(t).Host, "unix://")
	over := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	repository, tag, _ := strings.Cut(name, ":")
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://docker/images/create?fromSrc=-&repo="+repository+"&tag="+tag, archive)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := over.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if err := tar.Wait(); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%v, %s", err, answer.Status)
	}
}
