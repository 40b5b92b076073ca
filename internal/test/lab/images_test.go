package lab

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

// TestAgentsInImages has real agents work in the image of a task, with a tool of their own.
func TestAgentsInImages(t *testing.T) {
	testenv.NeedPodman(t)
	if os.Getenv("CONTAINERS_STORAGE_CONF") == "" {
		testenv.Need(t, testenv.Podman, errors.New("this needs a base image: CONTAINERS_STORAGE_CONF must name a storage that has docker.io/library/python:3.12-slim"))
	}
	for name, tool := range map[string]string{"claude": "^Bash$", "opencode": "^bash$"} {
		t.Run(name, func(t *testing.T) {
			m := startModel(t)
			dir := t.TempDir()
			for file, content := range map[string]string{
				"task.toml":              "schema_version = \"1.3\"\n",
				"instruction.md":         "Write. [[CALL " + tool + ` {"command":"echo $PWD >/opt/b; echo there >/tmp/t; python3 --version >/root/v","description":"write"}]] [[SAY all done]]`,
				"environment/Dockerfile": "FROM docker.io/library/python:3.12-slim\nWORKDIR /app\n",
				"tests/test.sh":          "echo 0 >/logs/verifier/reward.txt; [ $(cat /opt/b) = /app ] && [ $(cat /tmp/t) = there ] && grep -q Python /root/v && [ ! -e /home/evalrun/.claude ] && [ ! -e /run/evalrun/host ] && echo 1 >/logs/verifier/reward.txt\n",
			} {
				file = filepath.Join(dir, "image", file)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			evalrun(t, dir, 0, "run", "--agent", m.agentEntry(dir, name, nil), "-o", "results.json", "image")
			r := results(t, dir)
			if r.Score == nil || *r.Score != 1 || r.Isolation != "image" {
				t.Errorf("score %v in %s, want 1 in an image", r.Score, r.Isolation)
			}
			nothingLeft(t, dir, r)
			keyIsNowhere(t, dir)
		})
	}
}
