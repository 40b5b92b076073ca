package images

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/testenv"
)

// An agent that writes more than its task allows is ended, also if it hides what it has written in a
// folder that it closes.
func TestDiskLimitOverAnImage(t *testing.T) {
	inAll(t, func(t *testing.T, w way) {
		k := newTask(t, w, plain+"[environment]\nstorage_mb = 50\n", "", "mkdir /opt/closed; for i in {1..60}; do cat /bin/bash >>/opt/closed/big; done; chmod 0 /opt/closed; sleep 600", "")
		out := k.evalrun(3, "run", "--isolation", k.isolation, "-o", "results.json", "--agent", "oracle", "task")
		if r := k.results(); r.Error == nil || r.Error.Category != string(fault.DiskLimit) || !strings.Contains(r.Error.Message, "may write 50 MB") {
			t.Errorf("%+v\n%s", r.Error, out)
		}
	})
}

// Only docker-compose.yaml says which services a task needs. What has another name is a file like
// all others.
func TestComposeFileOfAnotherNameIsData(t *testing.T) {
	inAll(t, func(t *testing.T, w way) {
		k := newTask(t, w, plain, "COPY docker-compose.yml /data/\n", "", `[ "$(cat /data/docker-compose.yml)" = "services: [no" ]`)
		k.write("environment/docker-compose.yml", "services: [no\n")
		k.passes()
	})
}

// A Dockerfile of several stages, with what it takes from one to the next, with owners, and with what
// is left out.
func TestDockerfileOfSeveralStages(t *testing.T) {
	inAll(t, func(t *testing.T, w way) {
		owner := "; [ $(stat -c %U /from/a) = app ]"
		if w == asUser { // who has only files of its own
			owner = ""
		}
		k := newTask(t, w, plain, `
FROM scratch AS made
COPY a left /made/
COPY . /made/
FROM scratch
COPY root /
COPY --from=made --chown=app:app /made/a /from/a
COPY --from=0 /made /all
`, "", `[ "$(cat /from/a)" = a ]; [ -e /all/left ]; [ ! -e /all/not ]`+owner)
		k.write("environment/Dockerfile", strings.TrimPrefix(testenv.ReadFile(t, k.path("environment/Dockerfile")), "FROM scratch\nCOPY root /\n\n"))
		for _, name := range []string{"a", "left", "not"} {
			k.write("environment/"+name, name)
		}
		k.write("environment/.dockerignore", "not\n")
		k.passes()
	})
}

// An image without /tmp, whose folders nobody may write to, whose user is a number that no file of it knows, and
// which was made by what its base says for such images, has an agent all the same.
func TestStrangeImageInADaemon(t *testing.T) {
	if os.Getenv("EVALRUN_DOCKER_FORM") == "" {
		t.Skip("EVALRUN_DOCKER_FORM=remote runs it")
	}
	t.Parallel()
	k := agentTask(t, "", "", `[[RUN [ ! -e /tmp ] && [ $(id -u) = 4321 ] && ! echo x 2>/dev/null >/app/x && echo $(id -g) >/logs/agent/id; echo x >$HOME/own]] [[SAY done]]`,
		`[ $(cat /logs/agent/id) = 4322 ]; [ $(cat /onbuilt) = onbuilt ]; [ $(id -u) = 4321 ]; [ ! -e /tmp ]`)
	k.write("environment/Dockerfile", strings.NewReplacer("FROM scratch\n", "FROM scratch AS base\n", "WORKDIR /app\n", `ONBUILD RUN ["/bin/bash", "-c", "echo onbuilt >/onbuilt"]
FROM base
RUN ["/bin/bash", "-c", "rm -r /tmp; chmod 555 /app /opt /home"]
WORKDIR /app
USER 4321:4322
`).Replace(testenv.ReadFile(t, k.path("environment/Dockerfile"))))
	k.solves()
}

// A here-document in a Dockerfile is what the builder makes of it: older ones do not know it, and say
// so.
func TestHereDocumentInADockerfile(t *testing.T) {
	inWays(t, func(t *testing.T, w way) {
		k := newTask(t, w, plain, "COPY <<EOF /made\nof a document\nEOF\n", "", `[ "$(cat /made)" = "of a document" ]`)
		why := []string{"unknown instruction: OF"} // as a daemon says it
		if w == asImage {
			said, err := exec.Command("podman", "build", k.path("environment")).CombinedOutput()
			if err == nil {
				k.passes()
				return
			}
			lines := strings.Split(strings.TrimSpace(string(said)), "\n")
			why = strings.Split(lines[len(lines)-1], k.path("environment")) // which is built in a copy
		}
		out, err := k.command("run", "-o", "results.json", "--isolation", k.isolation, "--agent", "oracle", "task").CombinedOutput()
		if r := k.results(); err == nil && w == asDocker && r.Score != nil && *r.Score == 1 {
			return // a newer daemon
		}
		for _, text := range why {
			if r := k.results(); r.Error == nil || r.Error.Category != string(fault.Image) || !strings.Contains(r.Error.Message, text) {
				t.Errorf("%v, %+v\n%s\nwant: %s", err, r.Error, out, text)
			}
		}
	}, asImage, asDocker)
}

// Given an image whose folders are links that lead out of it, then nothing of this machine is read or
// written through them: the task has a fault, or passes with folders of its own.
func TestLinksOfAnImageLeadNowhere(t *testing.T) {
	inAll(t, func(t *testing.T, w way) {
		outside := t.TempDir()
		const word = "of this machine"
		for _, name := range []string{"out", "test.sh", "solve.sh"} {
			if err := os.WriteFile(filepath.Join(outside, name), []byte(word), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, dir := range []string{outside, filepath.Dir(outside)} {
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []struct{ name, target, workdir string }{
			{"absolute", outside, "/opt"},
			{"absolute in the working directory", outside, "/app"},
			{"upwards", "../../../../../../../.." + outside, "/opt"},
			{"of a process", "/proc/1/root" + outside, "/opt"},
		} {
			if w == asDocker && c.workdir == "/opt" && c.name != "of a process" {
				continue // the daemon resolves both as it does the one in the working directory
			}
			t.Run(c.name, func(t *testing.T) {
				k := newTask(t, w, plain+"artifacts = [\"/app/out\", \"/app\"]\n", "WORKDIR "+c.workdir+"\n", "", "")
				for _, at := range []string{"app", "tests", "solution", "logs", "run"} {
					link := k.path("environment/root/" + at)
					if err := errors.Join(os.RemoveAll(link), os.Symlink(c.target, link)); err != nil {
						t.Fatal(err)
					}
				}
				out, err := k.command("run", "--isolation", k.isolation, "-o", "results.json", "--agent", "oracle", "task").CombinedOutput()
				r := k.results()
				if passed := err == nil && r.Score != nil && *r.Score == 1; !passed && (r.Error == nil || r.Error.Category == string(fault.Internal)) {
					t.Errorf("%v, %+v\n%s", err, r.Error, out)
				}
				k.noWord(word)
			})
		}
		entries, err := os.ReadDir(outside)
		if err != nil || len(entries) != 3 {
			t.Errorf("outside there is %v, %v", entries, err)
		}
		for _, e := range entries {
			if text := testenv.ReadFile(t, outside, e.Name()); text != word {
				t.Errorf("%s is %q", e.Name(), text)
			}
		}
	})
}

// A task of Terminal-Bench 1 that was migrated runs in its image.
func TestMigratedTask(t *testing.T) {
	inEach(t, func(t *testing.T, w way) {
		k := newTask(t, w, plain, "WORKDIR /app\n", "", "")
		old := filepath.Join(k.dir, "old", "task")
		if out, err := exec.Command("sh", "-ec", "mkdir "+filepath.Dir(old)+"; cp -r "+filepath.Join(testenv.Top(t), "fixtures/tasks/terminal-bench/greeting")+" "+old+
			"; cp -a "+k.path("environment/root")+" "+k.path("environment/Dockerfile")+" "+old+"; rm -r "+k.path("")).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		k.evalrun(0, "task", "migrate", "-o", ".", "old/task")
		k.passes()
	})
}
