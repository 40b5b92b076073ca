package lab

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

// wordOfThePage is what fixtures/tasks/browser has to find out.
const wordOfThePage = "59ac63ee"

// G29, T30, T31: Playwright's server asks for roots, Chromium makes sockets in TMPDIR, and Debian's
// starts with its own files of /etc. Agents look at a page that the task serves, over stdio and over
// HTTP, and what they were shown is kept with the rollout.
func TestAgentsLookAtAPage(t *testing.T) {
	for _, c := range []struct{ agent, isolation string }{
		{"acp-agent", "bwrap"}, {"acp-agent", "process"}, {"acp-agent", "image"}, {"claude", "bwrap"}, {"opencode", "image"},
	} {
		t.Run(c.agent+" in "+c.isolation, func(t *testing.T) {
			m := startModel(t)
			needBrowser(t)
			args := []string{"run", "--isolation", c.isolation, "-o", "results.json"}
			dir := copyTask(t, "browser", lookAt(c.agent, "browser")+lookAt(c.agent, "shared-browser"))
			if c.isolation == "image" {
				needBaseImage(t)
			} else if err := os.Remove(filepath.Join(dir, "browser", "environment", "Dockerfile")); err != nil {
				t.Fatal(err)
			}
			if c.isolation == "process" { // which has no loopback of its own
				edit(t, filepath.Join(dir, "browser", "task.toml"), `network_mode = "no-network"`, "")
			}
			entry := filepath.Join(dir, "agent.json")
			if c.agent == "acp-agent" {
				bin := t.TempDir()
				content := fmt.Sprintf(`{"name": "acp-agent", "type": "acp", "command": [%q]}`, filepath.Join(bin, "acp-agent"))
				if err := errors.Join(testenv.Build(bin, testenv.ACPAgent), os.WriteFile(entry, []byte(content), 0o600)); err != nil {
					t.Fatal(err)
				}
			} else {
				entry = m.agentEntry(dir, c.agent, nil)
			}
			evalrun(t, dir, 0, append(args, "--agent", entry, "browser")...)
			r := results(t, dir)
			if r.Score == nil || *r.Score != 1 || r.Isolation != c.isolation {
				t.Errorf("score %v in %s, want 1 in %s", r.Score, r.Isolation, c.isolation)
			}
			pictures := screenshots(t, dir, r)
			for _, server := range []string{"browser", "shared-browser"} {
				picture, err := png.Decode(bytes.NewReader(pictures[server]))
				if err != nil {
					t.Errorf("the screenshot of %s: %v", server, err)
					continue
				}
				// The page turns from yellow to green when it was sent the word.
				if red, green, _, _ := picture.At(2, picture.Bounds().Dy()-2).RGBA(); red >= green {
					t.Errorf("the screenshot of %s does not show the page as it was at the end", server)
				}
			}
			nothingLeft(t, dir, r)
		})
	}
}

// lookAt has an agent open the page, send its word and take a screenshot, with the tools of a server.
func lookAt(agent, server string) string {
	var script strings.Builder
	for _, call := range []string{
		`browser_navigate {"url":"http://127.0.0.1:18930/"}`, `browser_wait_for {"text":"` + wordOfThePage + `"}`,
		`browser_evaluate {"function":"() => { document.querySelector('input').value = document.querySelector('#word').textContent; document.querySelector('button').click(); }"}`,
		`browser_wait_for {"text":"Thank you for ` + wordOfThePage + `"}`, `browser_take_screenshot {}`,
	} {
		tool, arguments, _ := strings.Cut(call, " ")
		name := server + "." + tool
		if agent != "acp-agent" {
			name = "^(mcp__)?" + server + "__?" + tool + "$"
		}
		fmt.Fprintf(&script, "[[CALL %s %s]]\n", name, arguments)
	}
	return script.String()
}

// screenshots are the last pictures in the trajectory of a rollout that the servers have sent.
func screenshots(t *testing.T, dir string, r rollout) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, ".evalrun", "runs", "*", "rollouts", r.RolloutID, "trajectory.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatalf("trajectories: %v, %v", files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]byte{}
	for line := range bytes.Lines(data) {
		var entry struct {
			Type string `json:"type"`
			Data struct {
				Server string `json:"server"`
				Result struct {
					Content []struct{ Type, Data, MimeType string } `json:"content"`
				} `json:"result"`
			} `json:"data"`
		}
		if err := json.Unmarshal(line, &entry); err != nil || entry.Type != "mcp_call" {
			continue // other entries have data of another shape
		}
		for _, c := range entry.Data.Result.Content {
			if c.Type == "image" && c.MimeType == "image/png" {
				if found[entry.Data.Server], err = base64.StdEncoding.DecodeString(c.Data); err != nil {
					t.Error(err)
				}
			}
		}
	}
	return found
}

// needBrowser skips a test where there is no Chromium, or the task's packages are not installed.
func needBrowser(t *testing.T) {
	t.Helper()
	for _, program := range []string{"chromium", "node"} {
		_, err := exec.LookPath(program)
		testenv.Need(t, testenv.Lab, err)
	}
	if _, err := os.Stat(filepath.Join(testenv.Top(t), "fixtures/tasks/browser/environment/node_modules/@playwright/mcp/cli.js")); err != nil {
		testenv.Need(t, testenv.Lab, errors.Join(errors.New("npm ci --ignore-scripts in fixtures/tasks/browser/environment installs what this needs"), err))
	}
}

// edit replaces a text in a file.
func edit(t *testing.T, path, text, by string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(content, []byte(text)) {
		t.Fatalf("%s has no %s", path, text)
	}
	if err := os.WriteFile(path, bytes.ReplaceAll(content, []byte(text), []byte(by)), 0o600); err != nil {
		t.Fatal(err)
	}
}
