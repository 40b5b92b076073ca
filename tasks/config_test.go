package tasks

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/input"
)

// read reads a task.toml that must be TOML.
func read(t *testing.T, document string) (Config, input.Problems) {
	t.Helper()
	root, err := parseTOML("task.toml", []byte(document))
	if err != nil {
		t.Fatalf("%s\n%v", document, err)
	}
	var r input.Reader
	c := readConfig(&r, root)
	return c, r.Problems
}

// accepted reads a task.toml in which nothing may be wrong or strange.
func accepted(t *testing.T, document string) Config {
	t.Helper()
	c, problems := read(t, document)
	if len(problems) > 0 {
		t.Errorf("%s\ngot problems:\n%v", document, problems)
	}
	return c
}

// problem says that reading a document must give exactly one problem, which begins like this.
func problem(t *testing.T, document, want string) {
	t.Helper()
	_, problems := read(t, document)
	if len(problems) != 1 || !strings.HasPrefix(problems[0].Error(), "task.toml:"+want) {
		t.Errorf("%s\n got %v\nwant task.toml:%s…", document, problems, want)
	}
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Each key of task.toml, in the order of the vectors that benchflow publishes. What they say of
// writing TOML does not apply, and variables are in TestInterpolation.
func TestTaskTOML(t *testing.T) {
	t.Run("expected skills are read, and shown to nobody", func(t *testing.T) {
		c := accepted(t, "[verifier.memory]\nexpected_skills = ['git-bisect', 'rg']")
		equal(t, "skills", c.Verifier.ExpectedSkills, []string{"git-bisect", "rg"})
		if out, err := json.Marshal(c); err != nil || strings.Contains(string(out), "bisect") {
			t.Errorf("%s, %v", out, err)
		}
	})
	t.Run("no expected skills", func(t *testing.T) {
		equal(t, "skills", accepted(t, "[verifier.memory]\nexpected_skills = []").Verifier.ExpectedSkills, []string{})
	})
	t.Run("nothing said of skills", func(t *testing.T) {
		equal(t, "skills", accepted(t, "").Verifier.ExpectedSkills, []string(nil))
	})
	t.Run("skills that are a string", func(t *testing.T) {
		problem(t, "[verifier.memory]\nexpected_skills = 'rg'", "2:19: verifier.memory.expected_skills: expected an array, got a string")
	})
	t.Run("verifier timeout omitted", func(t *testing.T) {
		equal(t, "timeout", accepted(t, "").Verifier.TimeoutSec, Seconds(600))
	})
	t.Run("verifier timeout exact", func(t *testing.T) {
		c := accepted(t, "[verifier]\ntimeout_sec = 90.5")
		equal(t, "timeout", c.Verifier.TimeoutSec.Duration(), 90*time.Second+500*time.Millisecond)
	})
	t.Run("verifier timeout that is none", func(t *testing.T) {
		for _, v := range []string{"0", "0.0", "-30", "nan", "inf", "-inf", "true", "'x'"} {
			problem(t, "[verifier]\ntimeout_sec = "+v, "2:15: verifier.timeout_sec: expected ")
		}
	})
	t.Run("unknown key", func(t *testing.T) {
		problem(t, "[environment]\nunknown_harbor_field = 1", "2:1: warning: environment.unknown_harbor_field: unknown key")
		problem(t, "[environment]\nmemory_nb = 1", `2:1: warning: environment.memory_nb: unknown key; did you mean "memory_mb"?`)
		_, problems := read(t, "[environment]\nunknown_harbor_field = 1")
		if problems.Err(false) != nil || problems.Err(true) == nil {
			t.Errorf("an unknown key is wrong only when that is asked for: %v", problems)
		}
	})
	t.Run("oracle is solution", func(t *testing.T) {
		equal(t, "env", accepted(t, "[oracle.env]\nA = 'b'").Solution.Env, []KeyValue{{"A", "b"}})
		problem(t, "[oracle]\n[solution]", `2:1: solution: the file declares both "solution" and "oracle"`)
	})
	t.Run("deprecated spellings", func(t *testing.T) {
		e := accepted(t, "[environment]\nimage = 'i'\nmemory = '4G'\nstorage = '8G'\nbugswarm_image_tag = 't'\n[solution]\ntimeout_sec = 1800")
		equal(t, "environment", []any{e.Environment.DockerImage, e.Environment.MemoryMB, e.Environment.StorageMB, e.Environment.BugswarmImageTag, e.Solution.TimeoutSec},
			[]any{"i", 4096, 8192, "t", Seconds(1800)})
		problem(t, "[environment]\nimage = 'i'\ndocker_image = 'd'", `2:9: environment.image: "image" is another name`)
	})
	t.Run("filters of an MCP server", func(t *testing.T) {
		equal(t, "servers", accepted(t, filtersDocument).Environment.MCPServers, []MCPServer{{Name: "atlas", Transport: TransportHTTP,
			URL: "http://localhost:18765/mcp", Headers: []KeyValue{{"x_run", "smoke"}}, Tools: []string{"search", "fetch"}, IncludeTags: []string{"safe"}, ExcludeTags: []string{"admin"}}})
	})
	t.Run("folder of an MCP server", func(t *testing.T) {
		equal(t, "servers", accepted(t, stdioDocument).Environment.MCPServers, []MCPServer{{Name: "word", Transport: TransportStdio, Command: "uvx",
			Args: []string{"--from", "office-word-mcp-server", "word_mcp_server"}, Cwd: "/workspace/agent_workspace"}})
	})
	t.Run("setup commands", func(t *testing.T) {
		c := accepted(t, "[[environment.setup_commands]]\ncommand = 'make'\nenv = { T = '${TOKEN}' }")
		equal(t, "commands", c.Environment.SetupCommands, []SetupCommand{{Command: "make", TimeoutSec: 600, Service: "main", Env: []KeyValue{{"T", "${TOKEN}"}}}})
		problem(t, "[[environment.setup_commands]]\ncommand = ' '", "2:11: environment.setup_commands[0].command: expected a string that is not blank")
		problem(t, "[[environment.setup_commands]]\ncwd = '/a'", "1:1: environment.setup_commands[0].command: missing; expected a string")
		problem(t, "[[environment.setup_commands]]\ncommand = 'a'\ncwd = 'a'", "3:7: environment.setup_commands[0].cwd: expected an absolute path")
	})
	t.Run("variables directly in solution", func(t *testing.T) {
		equal(t, "env", accepted(t, "[solution]\nMODAL_TOKEN_ID = '${MODAL_TOKEN_ID}'\nenv = { A = '1' }").Solution.Env,
			[]KeyValue{{"A", "1"}, {"MODAL_TOKEN_ID", "${MODAL_TOKEN_ID}"}})
	})
	t.Run("unknown key in solution", func(t *testing.T) {
		problem(t, "[solution]\nunexpected = 'x'", "2:1: warning: solution.unexpected: unknown key")
	})
	t.Run("a variable with two values", func(t *testing.T) {
		problem(t, "[solution]\nA = '1'\nenv = { A = '2' }", "2:5: solution.A: Conflicting values")
		accepted(t, "[solution]\nA = '1'\nenv = { A = '1' }")
	})
	t.Run("the native format is not read", func(t *testing.T) {
		dir := t.TempDir()
		write(t, dir, "task.md", "---\n")
		_, problems := Load(dir)
		if len(problems) != 1 || !strings.Contains(problems.Error(), "bench tasks export") {
			t.Errorf("%v", problems)
		}
	})
	t.Run("environment and sandbox are one", func(t *testing.T) {
		equal(t, "cpus", []float64{accepted(t, "[environment]\ncpus = 2").Environment.CPUs, accepted(t, "[sandbox]\ncpus = 2").Environment.CPUs}, []float64{2, 2})
	})
	t.Run("both spellings", func(t *testing.T) {
		problem(t, "[environment]\n[sandbox]", `1:1: environment: the file declares both "environment" and "sandbox"`)
		problem(t, "[verifier.environment]\n[verifier.sandbox]", `1:1: verifier.environment: the file declares both`)
	})
	t.Run("mode of the verifier's environment", func(t *testing.T) {
		for _, name := range []string{"environment_mode", "sandbox_mode"} {
			equal(t, name, accepted(t, "[verifier]\n"+name+" = 'separate'").Verifier.EnvironmentMode, VerifierSeparate)
		}
		problem(t, "[verifier]\nenvironment_mode = 'separate'\nsandbox_mode = 'separate'", `2:20: verifier.environment_mode: the file declares both`)
	})
	t.Run("environment of a step's verifier", func(t *testing.T) {
		c := accepted(t, "[[steps]]\nname = 'a'\n[steps.verifier.environment]\ncpus = 3")
		equal(t, "cpus", c.Steps[0].Verifier.Environment.CPUs, 3.0)
		problem(t, "[[steps]]\nname = 'a'\n[steps.verifier.environment]\n[steps.verifier.sandbox]", "3:1: steps[0].verifier.environment: the file declares both")
	})
	t.Run("empty document", func(t *testing.T) {
		c := accepted(t, "")
		out, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "defaults", string(out), `{"schema_version":"1.3","agent":{},"verifier":{"type":"test-script","timeout_sec":600,"service":"main"},`+
			`"environment":{"network_mode":"public","build_timeout_sec":600,"os":"linux","cpus":1,"memory_mb":2048,"storage_mb":10240,"gpus":0},"solution":{}}`)
	})
	t.Run("versions", func(t *testing.T) {
		for document, want := range map[string]string{"version = '1.0'": "1.0", "schema_version = '1.4'": "1.4", "version = '2.0'\nschema_version = '1.2'": "1.2", "": "1.3"} {
			equal(t, document, accepted(t, document).SchemaVersion, want)
		}
		problem(t, "version = '2.0'", "1:11: warning: version: version 2.0 is newer than 1.4, the newest that this evalrun knows, and is read as that, as Harbor does") // T25
		problem(t, "version = '0.0'", "1:11: warning: version: version 0.0 is not known; the file is read as one of version 1.4")
		problem(t, "schema_version = 'abc'", `1:18: warning: schema_version: expected a version such as "1.4", got "abc"; the task can be checked, but not run`)
		equal(t, "1.0.0", accepted(t, "version = '1.0.0'").SchemaVersion, "1.0.0")
		problem(t, "version = 1.0", "1:11: version: expected a string, got a number")
		problem(t, "version = '1.5'", "1:11: warning: version: version 1.5 is newer")
		problem(t, "version = '1.10'", "1:11: warning: version: version 1.10 is newer")
	})
	t.Run("sizes", func(t *testing.T) {
		for size, want := range map[string]int{"1.5g": 1536, "4096K": 4, "4G": 4096, "512m": 512} {
			equal(t, size, accepted(t, "[environment]\nmemory = '"+size+"'").Environment.MemoryMB, want)
		}
		for _, size := range []string{"2GB", "G", "", "4", "-1G", "nanG", "1e300G"} {
			problem(t, "[environment]\nmemory = '"+size+"'", "2:10: environment.memory: expected a size")
		}
		problem(t, "[environment]\nstorage = '1G'\nstorage_mb = 1", "2:11: environment.storage: 1G contradicts storage_mb = 1")
		accepted(t, "[environment]\nstorage = '1G'\nstorage_mb = 1024")
	})
	t.Run("allow_internet", func(t *testing.T) {
		for document, want := range map[string]string{"allow_internet = false": NetworkNone, "allow_internet = true": NetworkPublic,
			"allow_internet = false\nnetwork_mode = 'no-network'": NetworkNone} {
			equal(t, document, accepted(t, "[environment]\n"+document).Environment.NetworkMode, want)
		}
		problem(t, "[environment]\nallow_internet = false\nnetwork_mode = 'public'", `2:18: environment.allow_internet: allow_internet = false contradicts`)
		problem(t, "[environment]\nallow_internet = true\nnetwork_mode = 'no-network'", `2:18: warning: environment.allow_internet: network_mode = "no-network" counts`)
	})
	t.Run("allowed hosts", func(t *testing.T) {
		for _, table := range []string{"agent", "verifier", "environment"} {
			problem(t, "["+table+"]\nnetwork_mode = 'allowlist'", "2:16: "+table+".network_mode: an allowlist needs allowed_hosts")
			problem(t, "["+table+"]\nallowed_hosts = ['a.b']", "2:17: "+table+".allowed_hosts: hosts are listed")
		}
		for _, host := range []string{"https://a.b", "a.b:80", "a.b/c", "", "a b", "[a.b]", "[::1", "::1/200", "*a.b"} {
			problem(t, "[agent]\nnetwork_mode = 'allowlist'\nallowed_hosts = ['"+host+"']", "3:17: agent.allowed_hosts: expected host names, addresses or ranges of addresses alone")
		}
		hosts := []string{"*", "*.a.b", "a.*.b", "10.0.0.1", "10.0.0.0/8", "::1", "[::1]", "2001:db8::/32"}
		equal(t, "hosts", accepted(t, "[agent]\nnetwork_mode = 'allowlist'\nallowed_hosts = ['"+strings.Join(hosts, "', '")+"']").Agent.AllowedHosts, hosts)
		problem(t, "[agent]\nallowed_hosts = []", "2:17: agent.allowed_hosts: no host is listed; remove the key")
		accepted(t, "[agent]\nnetwork_mode = 'public'\nallowed_hosts = []")
		equal(t, "hosts", accepted(t, "[agent]\nnetwork_mode = 'allowlist'\nallowed_hosts = ['A.B.']").Agent.AllowedHosts, []string{"a.b"})
	})
	t.Run("task name", func(t *testing.T) {
		for _, name := range []string{"hello", "a/b..c", "/b", "a/.b", "a/b/c"} {
			problem(t, "[task]\nname = '"+name+"'", "2:8: task.name: expected a name")
		}
		problem(t, "[task]\nversion = '1'", "1:1: task.name: missing")
		equal(t, "name", accepted(t, "[task]\nname = 'harbor/hello-mcp'").Task.Name, "harbor/hello-mcp")
	})
	t.Run("what only Harbor accepts", func(t *testing.T) {
		c := accepted(t, "artifacts = [{ source = '/a', service = 'db' }]\n[[verifier.collect]]\ncommand = 'a'\nservice = 'db'\ntimeout_sec = 5\nuser = 1")
		equal(t, "collect", c.Verifier.Collect, []Collect{{Command: "a", Service: "db", TimeoutSec: 5, User: "1"}})
		equal(t, "artifacts", c.Artifacts, []Artifact{{Source: "/a", Service: "db"}})
		problem(t, "custom_docker_compose = 'x'", "1:1: warning: custom_docker_compose: unknown key")
		problem(t, "artifacts = [{ source = '../a' }]", "1:25: artifacts[0].source: expected a path without")
		problem(t, "artifacts = ['/a/../b']", "1:14: artifacts[0]: expected a path without")
		for _, d := range []string{"/b", "../b", `b\c`, "."} {
			problem(t, "artifacts = [{ source = '/a', destination = '"+d+"' }]", "1:45: artifacts[0].destination: expected a path below")
		}
		problem(t, "artifacts = [{ source = '/a', destination = 'manifest.json' }]", "1:45: artifacts[0].destination: manifest.json is")
		problem(t, "artifacts = [{ source = 'a', service = 'db' }]", "1:25: artifacts[0].source: expected an absolute path")
	})
	t.Run("reward range", func(t *testing.T) {
		equal(t, "range", accepted(t, "[verifier]\nreward_range = [-1, 1]").Verifier.Range(), [2]float64{-1, 1})
		equal(t, "range", accepted(t, "").Verifier.Range(), [2]float64{0, 1})
		for _, r := range []string{"[0.2, 1]", "[0]", "[0, 0.5]", "[1, 0]", "[0, inf]", "['0', 1]", "[0, 1, 2]"} {
			problem(t, "[verifier]\nreward_range = "+r, "2:16: verifier.reward_range: expected the lowest and the highest reward")
		}
	})
	t.Run("shared verifier with an environment", func(t *testing.T) {
		problem(t, "[verifier]\nenvironment_mode = 'shared'\n[verifier.environment]", "3:1: verifier.environment: a verifier that shares")
	})
	t.Run("operating system", func(t *testing.T) {
		equal(t, "os", accepted(t, "[environment]\nos = 'LINUX'").Environment.OS, "linux")
		problem(t, "[environment]\nos = 'linx'", `2:6: environment.os: expected one of linux, windows, got "linx"; did you mean "linux"?`)
	})
	t.Run("topology", func(t *testing.T) {
		problem(t, "[environment.tpu]\ntype = 'v6e'\ntopology = '2by4'", "3:12: environment.tpu.topology: expected dimensions")
	})
	t.Run("numbers in quotes", func(t *testing.T) {
		c, problems := read(t, "[agent]\ntimeout_sec = '120'")
		if c.Agent.TimeoutSec != 120 || problems.Err(false) != nil || len(problems) != 1 {
			t.Errorf("%v, %v", c.Agent.TimeoutSec, problems)
		}
		problem(t, "[agent]\ntimeout_sec = 0", "2:15: agent.timeout_sec: expected more than 0 seconds")
	})
}

// Whole numbers, as pydantic takes them.
func TestWholeNumbers(t *testing.T) {
	for literal, want := range map[string]int{"0": 0, "2.0": 2, "1_000": 1000, "0x10": 16, "1e3": 1000, "+5": 5, "9007199254740993": 9007199254740993} {
		equal(t, literal, accepted(t, "[environment]\ngpus = "+literal).Environment.GPUs, want)
	}
	problem(t, "[environment]\ngpus = 1.5", "2:8: environment.gpus: expected a whole number, got 1.5")
	problem(t, "[environment]\ngpus = 1e300", "2:8: environment.gpus: expected a whole number")
	problem(t, "[environment]\ncpus = [1]", "2:8: environment.cpus: expected a number, got an array")
	equal(t, "a fraction", accepted(t, "[environment]\ncpus = 0.5").Environment.CPUs, 0.5) // T25
}

func TestSteps(t *testing.T) {
	problem(t, "[[steps]]\nagent = {}", "1:1: steps[0].name: missing")
	for _, name := range []string{"..", "a/b", ".", `a\b`} {
		problem(t, "[[steps]]\nname = '"+name+"'", "2:8: steps[0].name: expected the name of a folder")
	}
	problem(t, "[[steps]]\nname = 'a'\n[[steps]]\nname = 'a'", "4:8: steps[1].name: there is another step")
	problem(t, "[[steps]]\nname = 'a'\n[[steps]]\nname = 'A'", `4:8: steps[1].name: there is another step "a"`)
	problem(t, "[[steps]]\nname = '\u00e9'\n[[steps]]\nname = 'e\u0301'", "4:8: steps[1].name: there is another step")
	problem(t, "[agent]\nuser = 1.5", "2:8: agent.user: expected a user's name or whole number, got 1.5")
	problem(t, "[[steps]]\nname = 'a'\nmin_reward = 'x'", "3:14: steps[0].min_reward: expected a finite number")
	problem(t, "multi_step_reward_strategy = 'max'", "1:30: multi_step_reward_strategy: expected one of mean, final")
	accepted(t, "multi_step_reward_mode = 'mean'")
}

func TestSeconds(t *testing.T) {
	for s, want := range map[Seconds]time.Duration{0: 0, -1: 0, 0.25: 250 * time.Millisecond, 1e300: 1<<63 - 1} {
		equal(t, "duration", s.Duration(), want)
	}
	c, problems := read(t, "[environment]\nbuild_timeout_sec = -1\n[environment.healthcheck]\ncommand = 'a'\nretries = 0")
	if len(problems) != 1 || !problems[0].Warning || c.Environment.BuildTimeoutSec != 0 {
		t.Errorf("%v, %v", c.Environment.BuildTimeoutSec, problems)
	}
}

const filtersDocument = `version = "1.0"

[[environment.mcp_servers]]
name = "atlas"
transport = "streamable-http"
url = "http://localhost:18765/mcp"
headers = { x_run = "smoke" }
tools = ["search", "fetch"]
include_tags = ["safe"]
exclude_tags = ["admin"]
`

const stdioDocument = `version = "1.0"

[[environment.mcp_servers]]
name = "word"
transport = "stdio"
command = "uvx"
args = ["--from", "office-word-mcp-server", "word_mcp_server"]
cwd = "/workspace/agent_workspace"
`

func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	file := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}
