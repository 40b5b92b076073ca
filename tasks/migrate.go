package tasks

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/input"
)

// The files of a Terminal-Bench 1 task.
const (
	oldConfig   = "task.yaml"
	oldTests    = "run-tests.sh"
	oldSolution = "solution.sh"
)

// IsOldDir reports whether path is a task directory of Terminal-Bench 1: a folder with a task.yaml.
func IsOldDir(path string) bool { return isFile(filepath.Join(path, oldConfig)) }

// FindOld returns the task directories of Terminal-Bench 1 at path: itself, or those in it.
func FindOld(path string) ([]string, error) {
	if IsOldDir(path) {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, e := range entries {
		if dir := filepath.Join(path, e.Name()); IsOldDir(dir) {
			dirs = append(dirs, dir)
		}
	}
	if dirs == nil {
		return nil, fmt.Errorf(
			"%s: there is no task of Terminal-Bench 1 here: expected a folder with %s, or folders with one", path, oldConfig)
	}
	return dirs, nil
}

// Migrate makes a task directory at to, which must not exist, from the Terminal-Bench 1 task at
// from. The problems name everything that cannot be migrated, with file and key; if one of them is
// no warning nothing is made. The error is of the disk.
func Migrate(from, to string) (input.Problems, error) {
	if _, err := os.Lstat(to); err == nil {
		return input.Problems{{File: to, Message: "is there already; nothing is overwritten"}}, nil
	}
	m := &migration{from: from}
	m.read()
	if m.r.Problems.Err(false) != nil {
		return m.r.Problems, nil
	}
	parent := filepath.Dir(filepath.Clean(to))
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return m.r.Problems, err
	}
	tmp, err := os.MkdirTemp(parent, ".evalrun-migrate-")
	if err != nil {
		return m.r.Problems, err
	}
	err = os.Chmod(tmp, 0o755)
	if err == nil {
		err = m.write(tmp)
	}
	if err == nil && m.r.Problems.Err(false) == nil {
		// Load the result as any task, to make sure that it is one.
		_, problems := Load(tmp)
		for _, p := range problems {
			p.File = strings.Replace(p.File, tmp, to, 1)
			m.r.Problems = append(m.r.Problems, p)
		}
	}
	if err == nil && m.r.Problems.Err(false) == nil {
		if err = os.Rename(tmp, to); err == nil { // replaces an empty folder at most
			return m.r.Problems, durable.Sync(parent)
		}
	}
	return m.r.Problems, errors.Join(err, os.RemoveAll(tmp))
}

// migration is a task of Terminal-Bench 1 that is being read.
type migration struct {
	from string
	r    input.Reader

	instruction     string
	agent, verifier float64
	metadata        []input.Member
	compose         composed
}

func (m *migration) file(name string) string { return filepath.Join(m.from, filepath.FromSlash(name)) }

func (m *migration) problem(name, format string, args ...any) {
	m.r.Problems = append(m.r.Problems, input.Problem{File: m.file(name), Message: fmt.Sprintf(format, args...)})
}

// parse reads a YAML document.
func (m *migration) parse(name string) *input.Node {
	data, err := readFile(m.file(name))
	if err != nil {
		m.problem(name, "cannot be read: %s", reason(err))
		return nil
	}
	n, err := input.Parse(m.file(name), data)
	if err != nil {
		m.r.Problems = append(m.r.Problems, asProblems(m.file(name), err)...)
		return nil
	}
	return n
}

func (m *migration) read() {
	if n := m.parse(oldConfig); n != nil {
		m.readConfig(n)
	}
	m.compose = m.readCompose()
	if !isFile(m.file(oldTests)) {
		m.problem(oldTests, "missing; a task without it has nothing that gives a reward")
	}
	if isFile(m.file("solution.yaml")) {
		m.problem("solution.yaml", "keys that are typed into a terminal cannot be migrated; write them as a script, %s",
			oldSolution)
	}
	m.links()
}

// oldMetadata are the keys of task.yaml that are only for people.
var oldMetadata = []string{"author_name", "author_email", "difficulty", "category", "tags",
	"estimated_duration_sec", "expert_time_estimate_min", "junior_time_estimate_min"}

func (m *migration) readConfig(n *input.Node) {
	f := m.r.Object(n)
	m.instruction = f.RequiredString("instruction")
	const day = 24 * 3600
	// The defaults are those of Terminal-Bench.
	m.agent, m.verifier =
		f.Float("max_agent_timeout_sec", 360, 0.001, 30*day), f.Float("max_test_timeout_sec", 60, 0.001, 30*day)
	for _, name := range oldMetadata {
		if value := f.Get(name); value != nil && value.Kind != input.Null {
			m.metadata = append(m.metadata, input.Member{Key: name, Value: value})
		}
	}
	switch parser := f.String("parser_name", "pytest"); parser {
	case "pytest":
	default:
		m.r.Warnf(f.Get("parser_name"), "the parser %q is not migrated: the reward is 1 if %s ends with 0, else 0",
			parser, oldTests)
	}
	if f.Bool("run_tests_in_same_shell", false) {
		m.r.Warnf(f.Get("run_tests_in_same_shell"), "the tests are run in a shell of their own, not in that of the agent")
	}
	if f.Bool("disable_asciinema", false) {
		m.r.Warnf(f.Get("disable_asciinema"), "has no meaning here and is left out")
	}
	f.Ignore("max_agent_timeout_sec", "max_test_timeout_sec")
	for _, unknown := range f.Unknown() {
		m.r.Warnf(unknown.Value, "is not migrated: there is no key for it")
	}
}

// links refuses links and special files: a copy of them would not be the same.
func (m *migration) links() {
	err := filepath.WalkDir(m.from, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && !e.Type().IsRegular() {
			m.r.Problems = append(m.r.Problems,
				input.Problem{File: path, Message: "is no regular file; put a copy in its place"})
		}
		return err
	})
	if err != nil {
		m.problem(".", "%v", err)
	}
}

// config returns the task.toml.
func (m *migration) config() string {
	var out strings.Builder
	number := func(f float64) string {
		text := strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(text, ".") {
			text += ".0"
		}
		return text
	}
	fmt.Fprintf(&out, "schema_version = \"1.4\"\n")
	if len(m.metadata) > 0 {
		fmt.Fprintf(&out, "\n[metadata]\n")
		for _, e := range m.metadata {
			fmt.Fprintf(&out, "%s = %s\n", e.Key, tomlValue(e.Value))
		}
	}
	fmt.Fprintf(&out, "\n[agent]\ntimeout_sec = %s\n\n[verifier]\ntimeout_sec = %s\n", number(m.agent), number(m.verifier))
	m.compose.environment(&out)
	return out.String()
}

// tomlValue writes a value of the metadata. A JSON string is a TOML string.
func tomlValue(n *input.Node) string {
	switch n.Kind {
	case input.Number, input.Bool:
		return n.Text
	case input.Array:
		var items []string
		for _, item := range n.Items {
			items = append(items, tomlValue(item))
		}
		return "[" + strings.Join(items, ", ") + "]"
	case input.String:
		return quoted(n.Text)
	}
	return quoted(string(n.JSON()))
}

func quoted(text string) string {
	data, err := json.Marshal(text)
	if err != nil {
		return `""` // a string always marshals
	}
	return strings.NewReplacer("\x7f", `\u007f`).Replace(string(data))
}

// giveReward is appended to the tests: their exit code is the verdict.
const giveReward = `
)
# Added by evalrun task migrate: the exit code of the tests is the reward.
_EXIT_CODE=$?
if [ $_EXIT_CODE -eq 0 ]; then
    echo 1 >/logs/verifier/reward.txt
else
    echo 0 >/logs/verifier/reward.txt
fi
exit $_EXIT_CODE
`

// taken returns the files that go to places of their own.
func (m *migration) taken() []string {
	return []string{oldConfig, oldTests, oldSolution, "tests", "docker-compose.yaml", "docker-compose.yml"}
}

func (m *migration) write(to string) error {
	tests, err := os.ReadFile(m.file(oldTests))
	if err != nil {
		return err
	}
	script := strings.NewReplacer("${TEST_DIR}", "/tests", "$TEST_DIR", "/tests").Replace(string(tests))
	instruction := strings.TrimRight(m.instruction, "\n") + "\n"
	err = errors.Join(writeNew(to, "task.toml", m.config(), 0o644), writeNew(to, "instruction.md", instruction, 0o644))
	if err == nil && isFolder(m.file("tests")) {
		err = os.CopyFS(filepath.Join(to, "tests"), os.DirFS(m.file("tests")))
	}
	if err == nil {
		err = os.MkdirAll(filepath.Join(to, "tests"), 0o755)
	}
	if err == nil {
		err = writeNew(to, "tests/test.sh", withReward(script), 0o755)
	}
	if err != nil {
		if errors.Is(err, fs.ErrExist) {
			m.problem("tests/test.sh", "is there already, and would be overwritten by %s", oldTests)
			return nil
		}
		return err
	}
	if isFile(m.file(oldSolution)) {
		solution, err := os.ReadFile(m.file(oldSolution))
		if err == nil {
			err = os.MkdirAll(filepath.Join(to, "solution"), 0o755)
		}
		if err == nil {
			err = writeNew(to, "solution/solve.sh", string(solution), 0o755)
		}
		if err != nil {
			return err
		}
	}
	return m.writeEnvironment(filepath.Join(to, "environment"))
}

// withReward makes a verifier of a test script. The script is in a subshell, so that the reward is
// written also if it exits.
func withReward(script string) string {
	line, rest, ok := strings.Cut(script, "\n")
	if !ok || !strings.HasPrefix(line, "#!") {
		line, rest = "#!/bin/bash", script
	}
	return line + "\n(\n" + strings.TrimRight(rest, "\n") + giveReward
}

func writeNew(dir, name, content string, mode os.FileMode) error {
	f, err := os.OpenFile(filepath.Join(dir, filepath.FromSlash(name)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Chmod(mode), f.Close())
}

// writeEnvironment copies the build context, with a Dockerfile that includes the compose file's
// settings of the container.
func (m *migration) writeEnvironment(to string) error {
	context := m.file(m.compose.context)
	entries, err := os.ReadDir(context)
	if err == nil {
		err = os.MkdirAll(to, 0o755)
	}
	if err != nil {
		return err
	}
	var dockerfile []byte
	for _, e := range entries {
		from, name := filepath.Join(context, e.Name()), e.Name()
		switch {
		case name == "Dockerfile":
			if dockerfile, err = os.ReadFile(from); err != nil {
				return err
			}
			continue
		case m.compose.context == "." && slices.Contains(m.taken(), name) && !m.copied(context, name):
			continue
		case e.IsDir():
			err = os.CopyFS(filepath.Join(to, name), os.DirFS(from))
		default:
			err = copyFile(from, filepath.Join(to, name))
		}
		if err != nil {
			return err
		}
	}
	return writeNew(to, "Dockerfile", m.compose.dockerfile(string(dockerfile)), 0o644)
}

// copied reports whether the Dockerfile puts a file into the image that the agent otherwise does
// not see.
func (m *migration) copied(context, name string) bool {
	data, err := os.ReadFile(filepath.Join(context, "Dockerfile"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) > 2 && (strings.EqualFold(fields[0], "COPY") || strings.EqualFold(fields[0], "ADD")) &&
			slices.ContainsFunc(fields[1:len(fields)-1], func(f string) bool {
				f = strings.TrimPrefix(f, "./")
				return f == name || strings.HasPrefix(f, name+"/")
			}) {
			return true
		}
	}
	return false
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, info.Mode().Perm())
}
