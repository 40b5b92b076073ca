package published

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/peers/fakemodel"
	"github.com/evalrun/evalrun/internal/testenv"
)

// modelled are the folders of tasks that a model solves which knows their solutions; CI has those of few.
var (
	modelledInCI = []string{"hello-multi-step-simple", "tb2-regex-log"}
	modelled     = append(modelledInCI, "hello-world", "hello-user", "hello-workdir", "hello-skills", "hello-healthcheck", "hello-multi-step-advanced",
		"log-report", "sb-civ6-adjacency-optimizer", "sb-dialogue-parser", "separate-verifier-environment", "tb2-headless-terminal", "tb2-sparql-university")
)

// notByOpencode are those of them that opencode cannot solve, with the reasons.
var notByOpencode = map[string]string{
	"hello-multi-step-simple": "each step may take 30 s, in which opencode has hardly started on a busy machine",
}

// allModelled, if it is set, has the model solve all of the tasks, and a coding agent of the lab beside it.
const allModelled = "EVALRUN_PUBLISHED_MODEL"

// A model solves published tasks in their images with bash alone, if it knows how: the scripted one puts the
// files of their solutions there, runs them, and removes them, in three turns.
func solveByModel(t *testing.T, dir, work string) {
	server, err := fakemodel.Start(fakemodel.Options{Key: "sk-scripted", Script: solutions(t, dir)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	t.Setenv("OPENAI_BASE_URL", server.URL()+"/v1")
	t.Setenv("OPENAI_API_KEY", "sk-scripted")
	if os.Getenv(allModelled) == "" {
		solve(t, dir, work, "model:openai/scripted", modelledInCI)
		return
	}
	solve(t, dir, work, "model:openai/scripted", modelled)
	program := fmt.Sprintf("opencode/node_modules/opencode-linux-%s/bin/opencode", map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH])
	entry, err := json.Marshal(map[string]any{"type": "acp", "extends": "opencode", "name": "opencode", "command": []string{testenv.LabFile(t, program), "acp"},
		"model": map[string]string{"url": server.URL() + "/v1", "key": "${OPENAI_API_KEY}", "name": "scripted"}})
	if err = errors.Join(err, os.WriteFile(filepath.Join(work, "opencode.json"), entry, 0o600)); err != nil {
		t.Fatal(err)
	}
	solve(t, dir, work, "opencode.json", slices.DeleteFunc(slices.Clone(modelled), func(name string) bool { return notByOpencode[name] != "" }))
}

// solve runs tasks with an agent, which must get the whole reward in three calls, or in three for each step.
func solve(t *testing.T, dir, work, agent string, names []string) {
	t.Helper()
	args := []string{"-j", "2", "--agent", agent}
	for _, name := range names {
		args = append(args, filepath.Join(dir, name))
	}
	results := run(t, work, 0, args...)
	for _, r := range results {
		if n := r.Usage.ToolCalls; r.ended() != "1" || r.Environment != "image" || n == 0 || n%3 != 0 {
			t.Errorf("%s, %s: %s with %d calls in %q: %+v", r.EvaluationName, r.Agent, r.ended(), n, r.Environment, r.Error)
		}
	}
	if len(results) != len(names) {
		t.Errorf("%d rollouts of %d tasks", len(results), len(names))
	}
}

// solutions gives the directives for a text that has the instruction of a task, or of one of its steps.
func solutions(t *testing.T, dir string) func(text string) string {
	t.Helper()
	script := map[string]string{}
	if err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "instruction.md" {
			return err
		}
		instruction, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		packed, err := pack(filepath.Join(filepath.Dir(path), "solution"))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		for _, command := range []string{"mkdir -p " + there + " && base64 -d <<'E' | tar xz -C " + there + "\n" + packed + "\nE\n",
			"bash " + there + "/solve.sh", "rm -rf " + there} {
			arguments, _ := json.Marshal(map[string]string{"command": command, "description": "solve the task"}) // of texts
			script[strings.TrimSpace(string(instruction))] += "[[CALL ^bash$ " + string(arguments) + "]]"
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return func(text string) string {
		for instruction, directives := range script {
			if strings.Contains(text, instruction) {
				return directives + "[[SAY solved]]"
			}
		}
		return ""
	}
}

// there is where a model puts a solution, which would otherwise be in /solution: not every user may write there.
const there = "/tmp/solved"

// pack returns the files of a solution as a text.
func pack(dir string) (string, error) {
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	packed := tar.NewWriter(zipped)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		data = bytes.ReplaceAll(data, []byte("/solution/"), []byte(there+"/"))
		name, err := filepath.Rel(dir, path)
		if err == nil {
			err = packed.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))})
		}
		if err == nil {
			_, err = packed.Write(data)
		}
		return err
	})
	err = errors.Join(err, packed.Close(), zipped.Close())
	return base64.StdEncoding.EncodeToString(out.Bytes()), err
}
