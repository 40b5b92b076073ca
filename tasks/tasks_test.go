package tasks

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLoad(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hello")
	if task, problems := Load(dir); task != nil || !strings.Contains(problems.Error(), "hello/task.toml: missing; expected a task directory") {
		t.Errorf("%v, %v", task, problems)
	}
	write(t, dir, "task.toml", "a = ")
	if task, problems := Load(dir); task != nil || !strings.Contains(problems.Error(), "task.toml:1:4: not valid TOML") {
		t.Errorf("%v, %v", task, problems)
	}
	write(t, dir, "task.toml", "")
	task, problems := Load(dir)
	if task == nil || len(problems) != 1 || !problems[0].Warning || !strings.Contains(problems.Error(), "instruction.md: warning: missing; the task can be checked, but not run") {
		t.Fatalf("%v, %v", task, problems)
	}
	equal(t, "name", task.Name, "hello")
	if err := task.Runnable(); err == nil || !strings.HasSuffix(err.Error(), "there is no "+filepath.Join(dir, "instruction.md")+", there is no "+filepath.Join(dir, "tests", "test.sh")) {
		t.Errorf("got %v", err)
	}
	write(t, dir, "instruction.md", " \n")
	if task, problems = Load(dir); len(problems) != 1 || !strings.Contains(problems.Error(), "empty; the task can be checked") {
		t.Errorf("%v", problems)
	}
	if err := task.Runnable(); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "instruction.md")+" is empty, there is no") {
		t.Errorf("got %v", err)
	}

	write(t, dir, "task.toml", "task.name = 'org/hello'")
	write(t, dir, "instruction.md", "Say hello.\n")
	write(t, dir, "tests/test.sh", "#!/bin/bash\r\necho 1 >/logs/verifier/reward.txt\r\n")
	if _, problems = Load(dir); len(problems) != 1 || !problems[0].Warning ||
		!strings.HasSuffix(problems.Error(), `test.sh: warning: its lines end with \r\n, which bash does not understand; end them with \n`) {
		t.Errorf("%v", problems)
	}
	write(t, dir, "tests/test.sh", "")
	write(t, dir, "solution/solve.sh", "")
	task, problems = Load(dir)
	if len(problems) != 0 || task.Runnable() != nil {
		t.Errorf("%v, %v", problems, task.Runnable())
	}
	equal(t, "name", task.Name, "org/hello")
	stages := task.Stages()
	equal(t, "stages", len(stages), 1)
	equal(t, "stage", []any{stages[0].Name, stages[0].Instruction, stages[0].Tests, stages[0].Solution, stages[0].Verifier.TimeoutSec},
		[]any{"", "Say hello.\n", []string{filepath.Join(dir, "tests")}, filepath.Join(dir, "solution"), Seconds(600)})

	// The folders have other names at benchflow.
	for from, to := range map[string]string{"tests": "verifier", "solution": "oracle"} {
		if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, "folders", []any{task.Stages()[0].Tests, task.Stages()[0].Solution}, []any{[]string{filepath.Join(dir, "verifier")}, filepath.Join(dir, "oracle")})
}

// Nothing that lies elsewhere is read as a part of the task, also not through a link to a
// folder above.
func TestLoadFollowsNoLinkOutOfTheTask(t *testing.T) {
	outside := t.TempDir()
	write(t, outside, "secret", "FROM secret")
	write(t, outside, "tests/test.sh", "")
	for link, to := range map[string]string{"instruction.md": "secret", "tests": "tests", "verifier": "tests", "solution": "tests", "oracle": "tests", "environment": "tests",
		"environment/Dockerfile": "secret", "steps/one": "", "steps/one/tests": "tests", "steps/one/instruction.md": "secret", "steps/one/workdir": "tests"} {
		dir := t.TempDir()
		write(t, outside, "instruction.md", "outside")
		write(t, dir, "task.toml", "")
		if strings.HasPrefix(link, "steps") {
			write(t, dir, "task.toml", "[[steps]]\nname = 'one'")
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, link)), 0o755), os.Symlink(filepath.Join(outside, to), filepath.Join(dir, link))); err != nil {
			t.Fatal(err)
		}
		task, problems := Load(dir)
		if err := problems.Err(false); err == nil || !strings.Contains(err.Error(), "a link that leads out of the task's folder, which is not followed") {
			t.Errorf("%s: %v", link, err)
		}
		if task.Instruction != "" || task.StepInstructions != nil {
			t.Errorf("%s: read %q, %q", link, task.Instruction, task.StepInstructions)
		}
	}

	// A link that stays within is followed, also if the task itself is found through one.
	dir := t.TempDir()
	write(t, dir, "real/task.toml", "")
	write(t, dir, "real/texts/first.md", "Do it.")
	linked := filepath.Join(dir, "linked")
	if err := errors.Join(os.Symlink("texts/first.md", filepath.Join(dir, "real", "instruction.md")), os.Symlink("real", linked)); err != nil {
		t.Fatal(err)
	}
	if task, problems := Load(linked); len(problems) != 0 || task.Instruction != "Do it." {
		t.Errorf("%v", problems)
	}
}

func TestLoadWhatIsTooLarge(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "task.toml", strings.Repeat("#", maxTOML+1))
	if _, problems := Load(dir); !strings.Contains(problems.Error(), "larger than 262144 bytes") {
		t.Errorf("%v", problems)
	}
	write(t, dir, "task.toml", "")
	write(t, dir, "instruction.md", strings.Repeat("x", maxFile+1))
	if _, problems := Load(dir); !strings.Contains(problems.Error(), "instruction.md: cannot be read: larger than 1048576 bytes") {
		t.Errorf("%v", problems)
	}
}

// Given a task of two steps, when its stages are asked for, then each has what it says itself and
// else what the task says.
func TestStages(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "task.toml", `
artifacts = ["/a"]
[agent]
timeout_sec = 100
user = "u"
[verifier]
timeout_sec = 50
env = { A = "1", B = "2" }
network_mode = "no-network"
reward_range = [0, 5]
[verifier.environment]
cpus = 3
[[verifier.collect]]
command = "c"
[[steps]]
name = "one"
artifacts = ["/b"]
min_reward = 0.5
agent.timeout_sec = 10
agent.network_mode = "no-network"
verifier = { timeout_sec = 5, env = { B = "3", C = "4" }, environment_mode = "shared", network_mode = "public" }
[[steps]]
name = "two"
`)
	for name, content := range map[string]string{"steps/one/instruction.md": "1", "steps/one/tests/check.py": "", "steps/one/workdir/setup.sh": "", "tests/test.sh": "",
		"steps/one/solution/solve.sh": "", "steps/two/tests/x": ""} {
		write(t, dir, name, content)
	}
	task, problems := Load(dir)
	if len(problems) != 1 || !strings.Contains(problems.Error(), "steps/two/instruction.md: warning: missing") {
		t.Fatalf("%v", problems)
	}
	if err := task.Runnable(); err == nil || !strings.HasSuffix(err.Error(), "there is no "+filepath.Join(dir, "steps", "two", "instruction.md")) {
		t.Errorf("got %v", err)
	}
	one, two := task.Stages()[0], task.Stages()[1]
	steps := filepath.Join(dir, "steps")
	equal(t, "one", one, Stage{
		Name: "one", Dir: filepath.Join(steps, "one"), Instruction: "1", Agent: Agent{TimeoutSec: 10, User: "u", Network: Network{NetworkMode: NetworkNone}},
		Verifier: Verifier{Type: VerifierScript, TimeoutSec: 5, Env: []KeyValue{{"A", "1"}, {"B", "3"}, {"C", "4"}}, RewardRange: &[2]float64{0, 5},
			Network: Network{NetworkMode: NetworkPublic}, Service: "main", EnvironmentMode: VerifierShared, Collect: []Collect{{Command: "c", Service: "main", TimeoutSec: 60}}},
		Tests: []string{filepath.Join(dir, "tests"), filepath.Join(steps, "one", "tests")}, Solution: filepath.Join(steps, "one", "solution"),
		Workdir: filepath.Join(steps, "one", "workdir"), MinReward: MinReward{"reward": 0.5}, Artifacts: []Artifact{{Source: "/a"}, {Source: "/b"}},
	})
	equal(t, "two", []any{two.Agent, two.Verifier.TimeoutSec, two.Verifier.Env, two.Verifier.Separate(), two.Verifier.NetworkMode, two.Solution, len(two.Tests), len(two.Artifacts)},
		[]any{Agent{TimeoutSec: 100, User: "u"}, Seconds(50), []KeyValue{{"A", "1"}, {"B", "2"}}, true, NetworkNone, "", 2, 1})
	equal(t, "the task's own", task.Config.Verifier.Env, []KeyValue{{"A", "1"}, {"B", "2"}})
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"set/b/task.toml", "set/a/task.toml", "set/.c/task.toml", "set/none/README.md", "other/tasks/d/task.toml", "other/README.md", "native/task.md", "file"} {
		write(t, dir, name, "")
	}
	for _, v := range []struct {
		patterns []string
		want     string
	}{
		{[]string{"set/a"}, "set/a"},
		{[]string{"set/a/task.toml"}, "set/a"},
		{[]string{"set", "./set/a/", "set/*", filepath.Join(dir, "set", "b")}, "set/a set/b"},
		{[]string{"other", "set/b"}, "other/tasks/d set/b"},
		{[]string{"other/tasks"}, "other/tasks/d"},
		{[]string{"*"}, "other/tasks/d set/a set/b"},
		{[]string{"set/[ab]"}, "set/a set/b"},
		{[]string{"none"}, "none: no such file or directory: expected a task directory, a dataset, or a glob of these"},
		{[]string{"file/x"}, "file/x: not a directory: expected"},
		{[]string{"file"}, "file: there is no task here: expected a folder with task.toml"},
		{[]string{"set/none"}, "set/none: there is no task here"},
		{[]string{"native"}, "bench tasks export"},
		{[]string{"set", "x*"}, "x*: the glob matches no task directory and no dataset"},
		{[]string{"set/n*"}, "set/n*: the glob matches no task directory"},
		{[]string{"["}, "[: not a valid glob"},
		{nil, ""},
	} {
		dirs, err := Find(v.patterns)
		got := strings.Join(dirs, " ")
		if err != nil {
			got = err.Error()
		}
		if got != v.want && (err == nil || !strings.Contains(got, v.want)) {
			t.Errorf("%v: got %s, want %s", v.patterns, got, v.want)
		}
	}
	if !IsDir("set/a") || IsDir("set") || IsDir("none") || IsDir("native") {
		t.Error("a task directory is a folder with a task.toml")
	}
}

func TestDigest(t *testing.T) {
	build := func(change func(dir string)) string {
		t.Helper()
		dir := t.TempDir()
		write(t, dir, "task.toml", "a")
		write(t, dir, "tests/test.sh", "b")
		if err := os.Symlink("test.sh", filepath.Join(dir, "tests", "link")); err != nil {
			t.Fatal(err)
		}
		if change != nil {
			change(dir)
		}
		digest, err := Digest(dir)
		if err != nil {
			t.Fatal(err)
		}
		return digest
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	original := build(nil)
	// sha256 of `file "task.toml" <sha256 of a>`, `link "tests/link" "test.sh"` and `file
	// "tests/test.sh" <sha256 of b>`, each with a newline.
	equal(t, "the same on every machine", original, "174b7900ffaf98ae883650ca707425ceb857ff209e872f0eb8029493b09c6451")
	for name, change := range map[string]func(string){
		"permissions that git does not keep": func(dir string) { must(os.Chmod(filepath.Join(dir, "task.toml"), 0o600)) },
		"empty folder":                       func(dir string) { must(os.Mkdir(filepath.Join(dir, "empty"), 0o700)) },
	} {
		equal(t, name, build(change), original)
	}
	seen := map[string]string{original: "the original"}
	for name, change := range map[string]func(string){
		"content":    func(dir string) { write(t, dir, "tests/test.sh", "c") },
		"new file":   func(dir string) { write(t, dir, "x", "") },
		"name":       func(dir string) { must(os.Rename(filepath.Join(dir, "task.toml"), filepath.Join(dir, "task.tom"))) },
		"executable": func(dir string) { must(os.Chmod(filepath.Join(dir, "tests", "test.sh"), 0o755)) },
		"link": func(dir string) {
			l := filepath.Join(dir, "tests", "link")
			must(os.Remove(l))
			must(os.Symlink("../task.toml", l))
		},
		"no link": func(dir string) {
			l := filepath.Join(dir, "tests", "link")
			must(os.Remove(l))
			write(t, dir, "tests/link", "test.sh")
		},
		"other place": func(dir string) { must(os.Rename(filepath.Join(dir, "tests"), filepath.Join(dir, "test"))) },
	} {
		digest := build(change)
		if other, again := seen[digest]; again {
			t.Errorf("%s has the digest of %s", name, other)
		}
		seen[digest] = name
	}
	if _, err := Digest(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a directory that is not there has no digest")
	}
}
