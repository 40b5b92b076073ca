package lab

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/testenv"
)

// node is the Node.js that the lab runs its agents with.
func node(t *testing.T) string {
	t.Helper()
	testenv.Need(t, testenv.Lab, sandbox.Available())
	return testenv.Node(t)
}

// model is the lab's scripted model, a process of its own.
type model struct {
	t    *testing.T
	port string
	log  string
	asks bool // the agents that it commands ask before they call tools
}

func startModel(t *testing.T) *model {
	t.Helper()
	m := &model{t: t, log: filepath.Join(t.TempDir(), "model.jsonl")}
	cmd := exec.Command(node(t), testenv.LabDir(t)+"/fake-llm.mjs")
	cmd.Env = append(os.Environ(), "PORT=0", "LOG="+m.log)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(strings.TrimSpace(line), "127.0.0.1:")
	m.port = unquoting(t, port)
	return m
}

// unquoting stands before the scripted model and keeps it from doing again what a transcript only
// quotes: any model understands that, but not a script. It returns the port.
func unquoting(t *testing.T, port string) string {
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: "127.0.0.1:" + port})
		body, err := io.ReadAll(r.In.Body)
		if err != nil {
			return // the agent has gone
		}
		lines := bytes.Split(body, []byte(`\n`)) // of texts in JSON
		for i, line := range lines {
			if bytes.HasPrefix(line, []byte("> ")) {
				lines[i] = bytes.ReplaceAll(line, []byte("[["), []byte("(("))
			}
		}
		body = bytes.Join(lines, []byte(`\n`))
		r.Out.Body, r.Out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	return server.URL[strings.LastIndex(server.URL, ":")+1:]
}

// request is one request to the model as its log has it.
type request struct {
	Kind    string   `json:"kind"`
	Auth    string   `json:"auth"`
	Tools   []string `json:"tools"`
	Entries []struct {
		Role  string `json:"role"`
		Text  string `json:"text"`
		Calls []struct {
			Name string `json:"name"`
		} `json:"calls"`
		Results []struct {
			Text string `json:"text"`
		} `json:"results"`
	} `json:"entries"`
}

// history is everything that the model was shown, in one text.
func (r request) history() string {
	var b strings.Builder
	for _, e := range r.Entries {
		fmt.Fprintf(&b, "%s: %s\n", e.Role, e.Text)
		for _, c := range e.Calls {
			fmt.Fprintf(&b, "call %s\n", c.Name)
		}
		for _, result := range e.Results {
			fmt.Fprintf(&b, "result %s\n", result.Text)
		}
	}
	return b.String()
}

// requests are those for the agent's own loop, which offer tools.
func (m *model) requests() (out []request) {
	m.t.Helper()
	data, err := os.ReadFile(m.log)
	if err != nil {
		m.t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var r request
		if json.Unmarshal(line, &r) == nil && r.Kind != "" && len(r.Tools) > 0 {
			out = append(out, r)
		}
	}
	return out
}

// modelKey is what the agents must never see.
const modelKey = "sk-the-key-of-the-model"

// secrets are what evalrun is given for the entries of agents and the sources of jobs.
var secrets = []string{"LAB_MODEL_KEY=" + modelKey, "JOBS_TOKEN=token-of-the-job-service"}

// agentEntry writes an entry for an agent of the lab: the registry's, with the lab's program.
func (m *model) agentEntry(dir, name string, more map[string]any) string {
	m.t.Helper()
	command, path := m.command(name)
	url, modelName := "http://127.0.0.1:"+m.port, "claude-sonnet-4-5"
	switch name {
	case "codex":
		url, modelName = url+"/v1", "gpt-5"
	case "opencode", "qwen", "kimi", "copilot":
		url += "/v1"
	}
	entry := map[string]any{
		"type": "acp", "extends": name, "name": name, "command": command, "env": map[string]string{"PATH": path},
		"model":            map[string]string{"url": url, "key": "${LAB_MODEL_KEY}", "name": modelName},
		"handshakeTimeout": "5m", // opencode needs half a minute of a processor until it answers, and qwen until it asks for its tools
	}
	for k, v := range more {
		if k == "env" {
			for name, value := range v.(map[string]string) {
				entry["env"].(map[string]string)[name] = value
			}
			continue
		}
		entry[k] = v
	}
	data, err := json.Marshal(entry)
	if err != nil {
		m.t.Fatal(err)
	}
	file := filepath.Join(dir, name+".json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		m.t.Fatal(err)
	}
	return file
}

// further are the programs, with their arguments, of the agents that install.sh of this folder
// installs. They are started by the lab's Node.js.
var further = map[string][]string{
	"kimi":    {"kimi/node_modules/@moonshot-ai/kimi-code/dist/main.mjs", "acp"},
	"copilot": {"copilot/node_modules/@github/copilot/npm-loader.js", "--acp"},
}

// command is how an agent is started, and the PATH that it needs.
func (m *model) command(name string) (command []string, path string) {
	m.t.Helper()
	if args := further[name]; args != nil {
		return append([]string{node(m.t), testenv.LabFile(m.t, args[0])}, args[1:]...), filepath.Dir(node(m.t)) + ":/usr/local/bin:/usr/bin:/bin"
	}
	cmd := exec.Command(node(m.t), testenv.LabDir(m.t)+"/agent.mjs", name, "--home", m.t.TempDir(), "--llm", m.port)
	if m.asks {
		cmd.Env = append(os.Environ(), "QWEN_MODE=default")
	}
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			testenv.Need(m.t, testenv.Lab, fmt.Errorf("%s", exit.Stderr))
		}
		m.t.Fatal(err)
	}
	var lab struct {
		Command []string          `json:"command"`
		Env     map[string]string `json:"env"`
	}
	if err := json.Unmarshal(out, &lab); err != nil {
		m.t.Fatal(err)
	}
	return lab.Command, lab.Env["PATH"]
}

var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "evalrun-lab")
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "evalrun"), testenv.Build(dir, testenv.Evalrun)
})

// evalrun runs the program in a folder, wants an exit code, and gives what it printed.
func evalrun(t *testing.T, dir string, code int, args ...string) string {
	t.Helper()
	out, got := evalrunAny(t, dir, args...)
	if got != code {
		t.Fatalf("evalrun %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, out)
	}
	return out
}

// evalrunAny runs the program in a folder, and gives what it printed and its exit code.
func evalrunAny(t *testing.T, dir string, args ...string) (string, int) {
	t.Helper()
	program, err := build()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), secrets...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// rollout is what the tests read of a results document.
type rollout struct {
	RolloutID string   `json:"rolloutId"`
	Status    string   `json:"status"`
	Score     *float64 `json:"score"`
	Evaluated []struct {
		Name   string `json:"evaluatorName"`
		Result struct {
			Score *float64 `json:"score"`
		} `json:"result"`
	} `json:"evaluationRunResults"`
	Isolation  string `json:"isolation"`
	MCPServers []struct {
		Name      string `json:"name"`
		Transport string `json:"transport"`
		Verdict   string `json:"verdict"`
		Calls     int    `json:"calls"`
		Held      int    `json:"held"`
	} `json:"mcpServers"`
	ResumedBy []struct {
		Session string `json:"session"`
		Note    string `json:"note"`
	} `json:"resumedBy"`
	Usage struct {
		Model struct {
			Main struct {
				Calls       int `json:"calls"`
				InputTokens int `json:"inputTokens"`
			} `json:"main"`
		} `json:"model"`
	} `json:"usage"`
	AgentExecutionOutput struct {
		Result struct {
			Output struct {
				Content string `json:"content"`
			} `json:"output"`
			Trigger struct {
				TriggerID string `json:"trigger_id"`
				Type      string `json:"trigger_type"`
			} `json:"trigger"`
		} `json:"result"`
	} `json:"agentExecutionOutput"`
}

func results(t *testing.T, dir string) rollout {
	t.Helper()
	return readResults(t, filepath.Join(dir, "results.json"))
}

// readResults reads a results document with one rollout.
func readResults(t *testing.T, path string) rollout {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Results []rollout `json:"evaluationSetResults"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Results) != 1 {
		t.Fatalf("%d rollouts, want one", len(doc.Results))
	}
	return doc.Results[0]
}

// nothingLeft makes sure that no process of a rollout is left.
func nothingLeft(t *testing.T, dir string, r rollout) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	var head struct {
		StoreID string `json:"storeId"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		t.Fatal(err)
	}
	if n, err := sandbox.Sweep(head.StoreID + "/" + r.RolloutID); err != nil || n > 0 {
		t.Errorf("%d processes of the rollout were left (%v)", n, err)
	}
}

// keyIsNowhere makes sure that the model's key is in no file of the store.
func keyIsNowhere(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(dir, ".evalrun"), func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if err == nil && bytes.Contains(data, []byte(modelKey)) {
			t.Errorf("%s holds the model's key", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
