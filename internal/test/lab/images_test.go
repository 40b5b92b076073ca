package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/image"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/internal/workspace"
)

// TestAgentsInImages has a real agent work in the image of a task, with a tool of its own.
func TestAgentsInImages(t *testing.T) {
	needBaseImage(t)
	m := startModel(t)
	dir := t.TempDir()
	writeTask(t, dir, map[string]string{
		"task.toml":              "schema_version = \"1.3\"\n",
		"instruction.md":         `Write. [[CALL ^Bash$ {"command":"echo $PWD >/opt/b; echo there >/tmp/t; python3 --version >/root/v","description":"write"}]] [[SAY all done]]`,
		"environment/Dockerfile": "FROM docker.io/library/python:3.12-slim\nWORKDIR /app\n",
		"tests/test.sh":          "echo 0 >/logs/verifier/reward.txt; [ $(cat /opt/b) = /app ] && [ $(cat /tmp/t) = there ] && grep -q Python /root/v && [ ! -e /home/evalrun/.claude ] && [ ! -e /run/evalrun/host ] && echo 1 >/logs/verifier/reward.txt\n",
	})
	evalrun(t, dir, 0, "run", "--agent", m.agentEntry(dir, "claude", nil), "-o", "results.json", "image")
	r := results(t, dir)
	if r.Score == nil || *r.Score != 1 || r.Isolation != "image" {
		t.Errorf("score %v in %s, want 1 in an image", r.Score, r.Isolation)
	}
	nothingLeft(t, dir, r)
	keyIsNowhere(t, dir)
}

// writeTask writes the files of a task in the folder image.
func writeTask(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for file, content := range files {
		file = filepath.Join(dir, "image", file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Given a real agent in an image that is suspended on one machine, when that machine is gone with
// everything that it had but the database, the images that it had unpacked too, then the agent goes on
// on another one: with what was said, and with what it has written anywhere.
func TestAgentsInImagesMove(t *testing.T) {
	needBaseImage(t)
	m, j := startModel(t), startJobs(t)
	dir := t.TempDir()
	writeTask(t, dir, map[string]string{
		"task.toml": "[environment]\ndocker_image = \"docker.io/library/python:3.12-slim\"\n",
		"instruction.md": `The codeword is petunia. [[CALL ^bash$ {"command":"echo once >>/opt/b; echo there >/tmp/t; rm /etc/issue","description":"write"}]] ` +
			`[[CALL run_process {"process":"invoice","arguments":{"ms":3600000,"info":"none","say":"\u005b\u005bSAY I am done\u005d\u005d"}}]] [[SAY first turn over]]`,
		"tests/test.sh": "echo 0 >/logs/verifier/reward.txt; [ \"$(cat /opt/b)\" = once ] && [ $(cat /tmp/t) = there ] && [ ! -e /etc/issue ] && echo 1 >/logs/verifier/reward.txt\n",
	})
	args := slices.Concat([]string{"run", "--run-id", "r", "-o", "results.json", "--agent", m.agentEntry(dir, "opencode", nil), "--eval-id", "image"},
		j.evalSet(dir, "nothing", "nothing"), []string{"image"})
	t.Setenv("EVALRUN_PORTABLE", "1")
	machine := func(name string) (its string) {
		its = filepath.Join(dir, name)
		t.Setenv("EVALRUN_MACHINE", name)
		t.Setenv("XDG_STATE_HOME", filepath.Join(its, "state"))
		t.Setenv("EVALRUN_IMAGES", filepath.Join(its, "images"))
		return its
	}
	a := machine("a")
	evalrun(t, dir, 75, args...)
	for _, gone := range []string{a, filepath.Join(dir, ".evalrun", "work"), filepath.Join(dir, ".evalrun", "runs")} {
		if err := workspace.Remove(gone); err != nil {
			t.Fatal(err)
		}
	}
	before := len(m.requests())
	j.passed.Store(int64(time.Hour))
	b := machine("b")
	t.Cleanup(func() { _ = workspace.Remove(b) })
	evalrun(t, dir, 0, "resume", "--wait", "--wait-timeout", "5m", "-o", "results.json", "r")
	r := results(t, dir)
	if r.Score == nil || *r.Score != 1 || r.Isolation != "image" || j.started() != 1 {
		t.Errorf("score %v in %s, want 1 in an image, after %d jobs: %+v", r.Score, r.Isolation, j.started(), r)
	}
	if history := m.requests()[before].history(); !strings.Contains(history, "petunia") || !strings.Contains(history, "has started a job") {
		t.Errorf("the model's first request on the other machine:\n%s", history)
	}
	nothingLeft(t, dir, r)
	keyIsNowhere(t, dir)
}

// Given an image with musl, in which no Node.js of this machine runs, then a real agent works there with one of
// evalrun's, which is fetched once.
func TestAgentInAnImageWithMusl(t *testing.T) {
	testenv.NeedLong(t)
	needBaseImage(t)
	m, dir := startModel(t), t.TempDir()
	if _, err := build(); err != nil {
		t.Fatal(err)
	}
	images, err := image.Dir()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("EVALRUN_IMAGES", images)
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // in which no Node.js is
	for file, content := range map[string]string{
		"task.toml":      "schema_version = \"1.3\"\n",
		"instruction.md": `Write. [[CALL ^run_shell_command$ {"command":"ls /run/evalrun/bin >/app/v","description":"write","is_background":false}]] [[SAY all done]]`,
		"environment/Dockerfile": `FROM docker.io/library/debian:bookworm-slim AS packages
RUN apt-get update && apt-get install -y --no-install-recommends busybox-static musl
FROM scratch
COPY --from=packages /bin/busybox /bin/busybox
COPY --from=packages /lib/ld-musl-*.so.1 /lib/
RUN ["/bin/busybox", "--install", "-s", "/bin"]
RUN printf '#!/bin/sh\nexec sh "$@"\n' >/bin/bash && chmod +x /bin/bash
WORKDIR /app
`,
		"tests/test.sh": "echo 0 >/logs/verifier/reward.txt; grep -qx node-24.19.0 /app/v && echo 1 >/logs/verifier/reward.txt\n",
	} {
		file = filepath.Join(dir, "image", file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	entry := m.agentEntry(dir, "qwen", nil)
	evalrun(t, dir, 0, "run", "--agent", entry, "-o", "results.json", "image")
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1") // the second time is without a network
	evalrun(t, dir, 0, "run", "--agent", entry, "-o", "results.json", "image")
	if r := results(t, dir); r.Score == nil || *r.Score != 1 || r.Isolation != "image" {
		t.Errorf("score %v in %s, want 1 in an image: %+v", r.Score, r.Isolation, r)
	}
}

// Given real agents in an image, then tools of the task's servers, which run in it too, answer them;
// a tool that starts a job suspends them, and when the executor that goes on with them is killed
// another process does it, and the tests find what they have left anywhere, once.
func TestAgentsInImagesWait(t *testing.T) {
	needBaseImage(t)
	for name, tool := range map[string]string{"claude": "^Bash$", "opencode": "^bash$"} {
		t.Run(name, func(t *testing.T) {
			m, j := startModel(t), startJobs(t)
			dir := copyTask(t, "mcp", fmt.Sprintf(`The codeword is petunia. [[CALL read_note {"name":"vault"}]] [[CALL open_vault {"key":%q}]] [[CALL submit_answer {"answer":%q}]] `+
				`[[CALL %s {"command":"echo once >>/opt/b; echo there >/tmp/t","description":"write"}]] `+
				`[[CALL run_process {"process":"invoice","arguments":{"ms":3600000,"info":"none","say":"\u005b\u005bSAY I am done\u005d\u005d"}}]] [[SAY first turn over]]`,
				secretOf("key of the vault"), secretOf("what is in the vault"), tool))
			for file, content := range map[string]string{
				"mcp/environment/Dockerfile": "FROM docker.io/library/python:3.12-slim\nWORKDIR /app\nCOPY server.py /app/\n",
				"mcp/tests/test.sh": "echo 0 >/logs/verifier/reward.txt; [ \"$(cat /opt/b)\" = once ] && [ $(cat /tmp/t) = there ] && grep -q " + secretOf("what is in the vault") +
					" /app/answer.txt && [ -s /logs/artifacts/notes.jsonl ] && [ -s /logs/artifacts/vault.jsonl ] && echo 1 >/logs/verifier/reward.txt\n",
			} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			args := slices.Concat([]string{"run", "--run-id", "r", "-o", "results.json", "--agent", m.agentEntry(dir, name, nil), "--eval-id", "evalrun/mcp"}, j.evalSet(dir, "nothing", "nothing"), []string{"mcp"})
			t.Setenv("EVALRUN_LEASE", "5s")
			evalrun(t, dir, 75, args...)
			before := len(m.requests())
			j.passed.Store(int64(time.Hour))
			killed(t, dir, func() bool { return len(m.requests()) > before }, "executor")
			evalrun(t, dir, 0, "resume", "--wait", "--wait-timeout", "5m", "-o", "results.json", "r")
			r := results(t, dir)
			if r.Score == nil || *r.Score != 1 || r.Isolation != "image" {
				t.Errorf("score %v in %s, want 1 in an image: %+v", r.Score, r.Isolation, r)
			}
			if j.started() != 1 {
				t.Errorf("%d jobs were started", j.started())
			}
			if notes, vault := calls(t, dir, "notes"), calls(t, dir, "vault"); fmt.Sprint(notes, vault) != "[read_note submit_answer] [open_vault]" {
				t.Errorf("the servers saw %v and %v", notes, vault)
			}
			if history := m.requests()[before].history(); !strings.Contains(history, "petunia") || !strings.Contains(history, "has started a job") {
				t.Errorf("the model's first request after the resume:\n%s", history)
			}
			nothingLeft(t, dir, r)
			keyIsNowhere(t, dir)
		})
	}
}

// killed runs the program and kills it when something has happened.
func killed(t *testing.T, dir string, happened func() bool, args ...string) {
	t.Helper()
	program, err := build()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), secrets...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	did := false
	for n := 0; n < 4 && !did; n++ { // an agent may be slow to start in a container, on a busy machine
		did = testenv.Eventually(happened)
	}
	_ = cmd.Process.Kill() // it may have ended
	_ = cmd.Wait()
	if !did {
		t.Fatalf("evalrun %s said:\n%s", strings.Join(args, " "), &said)
	}
}

// needBaseImage skips a test where there are no base images.
func needBaseImage(t *testing.T) {
	t.Helper()
	testenv.NeedPodman(t)
	if os.Getenv("CONTAINERS_STORAGE_CONF") == "" {
		testenv.Need(t, testenv.Podman, errors.New("this needs a base image: CONTAINERS_STORAGE_CONF must name a storage that has docker.io/library/python:3.12-slim"))
	}
}
