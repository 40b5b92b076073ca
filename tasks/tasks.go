// Package tasks reads task directories as published benchmarks have them: task.toml and
// instruction.md, environment/, tests/test.sh, solution/solve.sh, and steps/<name>/ with the same
// for a task of several steps.
//
// [Load] reads one and reports its problems, with file, line and key; [Task.Gaps] lists the parts
// that cannot be executed here; [Task.Stages] and [Task.Files] say what is to be done, and
// [ReadReward] reads the result. The package only reads: it knows nothing of agents, of ACP and of
// where processes live.
package tasks

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
)

const (
	configFile      = "task.toml"
	instructionFile = "instruction.md"
	// defaultWorkdir is the agent's working directory if neither task.toml nor the Dockerfile names
	// one.
	defaultWorkdir = "/app"
)

// Task is a task directory.
type Task struct {
	// Dir is the directory as it was given to Load.
	Dir string `json:"dir"`
	// Name is the name in the table [task], or else the directory's.
	Name   string `json:"name"`
	Config Config `json:"config"`
	// Instruction is the agent's instruction; empty in a task of several steps, whose steps have their
	// own.
	Instruction string `json:"instruction,omitempty"`
	// StepInstructions are the instructions of Config.Steps, in their order.
	StepInstructions []string `json:"step_instructions,omitempty"`
}

// Load reads a task directory. The task is nil if there is no task.toml or if it is no TOML; else
// it has everything that could be read, beside the problems. Parts that only a run needs, such as
// instruction.md, are warnings if they are missing: see [Task.Runnable].
func Load(dir string) (*Task, input.Problems) {
	file := filepath.Join(dir, configFile)
	data, err := readFile(file)
	if err != nil {
		problem := input.Problem{File: file, Message: "cannot be read: " + reason(err)}
		if errors.Is(err, os.ErrNotExist) {
			problem.Message = "missing; expected a task directory with task.toml and instruction.md" + nativeHint(dir)
		}
		return nil, input.Problems{problem}
	}
	root, err := parseTOML(file, data)
	if err != nil {
		return nil, asProblems(file, err)
	}
	var r input.Reader
	t := &Task{Dir: dir, Config: readConfig(&r, root)}
	t.Name = t.Config.Task.Name
	if t.Name == "" {
		t.Name = baseName(dir)
	}
	if linked := t.linksOut(); linked != nil {
		return t, append(r.Problems, linked...)
	}
	if len(t.Config.Steps) == 0 {
		t.Instruction = t.readInstruction(&r, instructionFile)
	}
	for _, s := range t.Config.Steps {
		t.StepInstructions = append(t.StepInstructions,
			t.readInstruction(&r, filepath.Join("steps", s.Name, instructionFile)))
	}
	t.warnOfCarriageReturns(&r)
	return t, r.Problems
}

// warnOfCarriageReturns warns of test scripts that bash does not run as they are meant: it takes the
// carriage return at a line's end for a part of its last word, and the reward is written elsewhere.
func (t *Task) warnOfCarriageReturns(r *input.Reader) {
	seen := map[string]bool{} // steps share the task's tests
	for _, s := range t.Stages() {
		for _, dir := range s.Tests {
			file := filepath.Join(dir, "test.sh")
			data, _ := readFile(file) // one that cannot be read is among what the task lacks
			line, _, _ := bytes.Cut(data, []byte("\n"))
			if !bytes.HasSuffix(line, []byte("\r")) || seen[file] {
				continue
			}
			seen[file] = true
			r.Problems = append(r.Problems, input.Problem{File: file, Warning: true, Message: `its lines end with ` +
				`\r\n, which bash does not understand; end them with \n`})
		}
	}
}

// parts are the files and folders of a task and of a step that are read.
var parts = []string{instructionFile, "environment", "environment/Dockerfile",
	"tests", "verifier", "solution", "oracle", "workdir"}

// linksOut finds parts that are links out of the task's folder. Following them would show an agent,
// or a reader of the results, what the task's author may not read.
func (t *Task) linksOut() (problems input.Problems) {
	root, err := filepath.EvalSymlinks(t.Dir)
	if err != nil {
		return nil // the read that follows reports it
	}
	dirs := []string{"."}
	for _, s := range t.Config.Steps {
		dirs = append(dirs, filepath.Join("steps", s.Name))
	}
	for _, dir := range dirs {
		for _, part := range parts {
			file := filepath.Join(t.Dir, dir, filepath.FromSlash(part))
			real, err := filepath.EvalSymlinks(file)
			if err != nil {
				continue // it does not exist, or the read that follows reports it
			}
			if rel, err := filepath.Rel(root, real); err != nil || !filepath.IsLocal(rel) {
				problems = append(problems, input.Problem{File: file,
					Message: "a link that leads out of the task's folder, which is not followed; put a copy in its place"})
			}
		}
	}
	return problems
}

func (t *Task) readInstruction(r *input.Reader, name string) string {
	file := filepath.Join(t.Dir, name)
	data, err := readFile(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
		r.Problems = append(r.Problems,
			input.Problem{File: file, Message: "missing; the task can be checked, but not run", Warning: true})
	case err != nil:
		r.Problems = append(r.Problems, input.Problem{File: file, Message: "cannot be read: " + reason(err)})
	case strings.TrimSpace(string(data)) == "":
		r.Problems = append(r.Problems,
			input.Problem{File: file, Message: "empty; the task can be checked, but not run", Warning: true})
	}
	return string(data)
}

// Runnable says what the directory lacks for a run, or returns nil: it needs an instruction and a
// test script for every stage. [Task.Gaps] reports existing parts that cannot be executed.
func (t *Task) Runnable() error {
	var wrong []string
	for _, g := range t.Lacks() {
		if file := filepath.Join(t.Dir, filepath.FromSlash(g.Key)); g.Reason == missing {
			wrong = append(wrong, "there is no "+file)
		} else {
			wrong = append(wrong, file+" is "+g.Reason)
		}
	}
	if wrong == nil {
		return nil
	}
	return fmt.Errorf("task %s cannot be run: %s", t.Dir, strings.Join(wrong, ", "))
}

const missing = "missing"

// Lacks returns the files without which Runnable says that the task cannot be run.
func (t *Task) Lacks() []Gap {
	g := &gaps{}
	for _, s := range t.Stages() {
		switch file := filepath.Join(s.Dir, instructionFile); {
		case s.Instruction == "" && !isFile(file):
			g.add(t.relative(file), missing)
		case strings.TrimSpace(s.Instruction) == "":
			g.add(t.relative(file), "empty")
		}
		if !slices.ContainsFunc(s.Tests, func(dir string) bool { return isFile(filepath.Join(dir, "test.sh")) }) {
			g.add(t.relative(filepath.Join(s.Dir, "tests", "test.sh")), missing)
		}
	}
	return g.found
}

// Stage is one turn of a task: the agent gets the instruction, and then the tests rate the result.
// A task without [[steps]] has one stage, without a name.
type Stage struct {
	Name string
	// Dir is the folder of the task or of the step.
	Dir         string
	Instruction string
	// Agent and Verifier are the step's, completed by the task's.
	Agent    Agent
	Verifier Verifier
	// Tests are the folders whose content makes up /tests; of two files with one name the later
	// folder's counts.
	Tests []string
	// Solution is the folder with solve.sh, or empty.
	Solution string
	// Workdir is a folder whose content is added to the working directory before the stage, or
	// empty. A setup.sh in it is run there first.
	Workdir     string
	Healthcheck *Healthcheck
	MinReward   MinReward
	// Artifacts are the artifacts of the task and of the step.
	Artifacts []Artifact
}

// Stages returns the turns of the task, in order. A step takes missing settings from the task, and
// its tests lie over the task's (Harbor's multi-step tasks).
func (t *Task) Stages() []Stage {
	tests := existing(t.Dir, "tests", "verifier")
	if len(t.Config.Steps) == 0 {
		return []Stage{{
			Dir: t.Dir, Instruction: t.Instruction, Agent: t.Config.Agent, Verifier: t.Config.Verifier, Tests: nonEmpty(tests),
			Solution: existing(t.Dir, "solution", "oracle"), Artifacts: t.Config.Artifacts,
		}}
	}
	stages := make([]Stage, len(t.Config.Steps))
	for i, step := range t.Config.Steps {
		dir := filepath.Join(t.Dir, "steps", step.Name)
		stages[i] = Stage{
			Name: step.Name, Dir: dir, Agent: step.Agent.over(t.Config.Agent), Verifier: step.Verifier.over(t.Config.Verifier),
			Tests: nonEmpty(tests, existing(dir, "tests", "verifier")), Solution: existing(dir, "solution", "oracle"),
			Workdir: existing(dir, "workdir"), Healthcheck: step.Healthcheck, MinReward: step.MinReward,
			Artifacts: slices.Concat(t.Config.Artifacts, step.Artifacts),
		}
		if i < len(t.StepInstructions) {
			stages[i].Instruction = t.StepInstructions[i]
		}
	}
	return stages
}

// existing returns the first of the folders that exists in dir, or "".
func existing(dir string, names ...string) string {
	for _, name := range names {
		if path := filepath.Join(dir, name); isFolder(path) {
			return path
		}
	}
	return ""
}

func nonEmpty(paths ...string) []string {
	return slices.DeleteFunc(paths, func(p string) bool { return p == "" })
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// maxFile bounds the files that a task is read from. The largest published instruction is a few
// dozen KiB.
const maxFile = 1 << 20

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("larger than %d bytes", maxFile)
	}
	return os.ReadFile(path)
}

// reason returns an error without the path, which the problem has already.
func reason(err error) string {
	var pathError *os.PathError
	if errors.As(err, &pathError) {
		return pathError.Err.Error()
	}
	return err.Error()
}

func asProblems(file string, err error) input.Problems {
	var p input.Problem
	if errors.As(err, &p) {
		return input.Problems{p}
	}
	return input.Problems{{File: file, Message: err.Error()}}
}
