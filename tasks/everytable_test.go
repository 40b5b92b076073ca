package tasks

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

// sharedTasks are the published task directories, which are not part of the repository.
func sharedTasks(t *testing.T) string {
	t.Helper()
	return testenv.DataDir(t, "tasks")
}

// Given the task directories of benchflow and Harbor, when they are loaded, then nothing is wrong
// with any of them, and nothing is strange but that some come without an instruction.
func TestPublishedTasks(t *testing.T) {
	dirs, err := Find([]string{sharedTasks(t)})
	if err != nil || len(dirs) < 12 {
		t.Fatalf("found %d tasks: %v", len(dirs), err)
	}
	for _, dir := range dirs {
		task, problems := Load(dir)
		for _, p := range problems {
			if !p.Warning || filepath.Base(p.File) != instructionFile {
				t.Errorf("%v", p)
			}
		}
		_, err := os.Stat(filepath.Join(dir, instructionFile))
		if has := task.Instruction != ""; has != (err == nil) {
			t.Errorf("%s: instruction %q", dir, task.Instruction)
		}
		if len(task.Config.Steps) == 0 && !strings.Contains(task.Runnable().Error(), "test.sh") {
			t.Errorf("%s: can be run without tests", dir)
		}
	}
}

// The task.toml that has every table, as the published one has it and with what is missing there.
const everyTable = `schema_version = "1.3"
source = "harbor/parity"
multi_step_reward_strategy = "final"
artifacts = [{ source = "/logs/artifacts", destination = "artifacts" }, "/app/out.txt"]
reward = { weights = [1, 0.5] }

[task]
name = "benchflow/harbor-parity"
version = "1.0.0"
description = "Exercises Harbor-compatible task.toml fields"
authors = [{ name = "BenchFlow", email = "benchflow@example.com" }]
keywords = ["parity", "task-md"]

[metadata]
category = "schema"
when = 2026-01-02
big = 9223372036854775807
hex = 0x1F
[metadata.custom]
kept = true

[agent]
timeout_sec = 120.0
prompt_prefix = " Be brief. "
user = "agent"
network_mode = "allowlist"
allowed_hosts = ["API.example.com."]

[verifier]
timeout_sec = 60.0
env = { JUDGE_API_KEY = "${JUDGE_API_KEY:-test}" }
reward_range = [-1, 2.5]
user = 0
network_mode = "public"
environment_mode = "separate"
pytest_plugins = ["pytest_playwright"]
[verifier.hardening]
cleanup_conftests = false
[verifier.memory]
expected_skills = ["git-bisect", "rg"]
[[verifier.collect]]
command = "git diff > /logs/artifacts/model.patch"
[verifier.judge]
context = "c"
[verifier.environment]
docker_image = "ghcr.io/example/grader:latest"
cpus = 2
memory_mb = 1024
network_mode = "no-network"

[environment]
network_mode = "allowlist"
allowed_hosts = ["datasets.example.com"]
docker_image = "ghcr.io/example/task:latest"
os = "LINUX"
cpus = 4.0
memory_mb = 4096
storage_mb = 8192
gpus = 1
gpu_types = ["T4", "A100"]
env = { DATASET = "${DATASET:-sample}" }
skills_dir = "/skills"
workdir = "/workspace"
bugswarm_image_tag = "tag"
[environment.tpu]
type = "v6e"
topology = "2x4"
[environment.healthcheck]
command = "python -m app.healthcheck"
interval_sec = 2.0
timeout_sec = 10.0
retries = 5
[[environment.mcp_servers]]
name = "atlas"
transport = "http"
url = "http://localhost:18765/mcp"
headers = { x_run = "smoke", a = "b" }
tools = ["search", "fetch"]
include_tags = ["safe"]
exclude_tags = ["admin"]
[[environment.setup_commands]]
command = "make"
cwd = "/app"
env = { B = "${B}", A = "1" }
user = "root"
service = "db"
timeout_sec = 5
host_lock = "lock"
capture_dir = "/c"
capture_dir_b64_env = "C"
capture_dir_b64_env_file_var = "F"

[solution]
env = { SOLUTION_MODE = "oracle" }
timeout_sec = 1800

[[steps]]
name = "scaffold"
min_reward = 0.5
artifacts = [{ source = "/app/scaffold.txt", exclude = ["*.pyc"], service = "main" }]
[steps.agent]
timeout_sec = 30.0
[steps.verifier]
timeout_sec = 15.0
env = { STEP = "scaffold" }

[[steps]]
name = "polish"
min_reward = { reward = 1, style = 0.25 }
healthcheck = { command = "true" }
`

const everyTableJSON = `{
 "schema_version": "1.3",
 "source": "harbor/parity",
 "task": {"name": "benchflow/harbor-parity", "version": "1.0.0", "description": "Exercises Harbor-compatible task.toml fields",
  "authors": [{"name": "BenchFlow", "email": "benchflow@example.com"}], "keywords": ["parity", "task-md"]},
 "metadata": {"category": "schema", "when": "2026-01-02", "big": 9223372036854775807, "hex": 31, "custom": {"kept": true}},
 "agent": {"timeout_sec": 120, "prompt_prefix": "Be brief.", "user": "agent", "network_mode": "allowlist", "allowed_hosts": ["api.example.com"]},
 "verifier": {"type": "test-script", "timeout_sec": 60, "env": [{"name": "JUDGE_API_KEY", "value": "${JUDGE_API_KEY:-test}"}], "reward_range": [-1, 2.5],
  "user": "0", "network_mode": "public", "service": "main", "pytest_plugins": ["pytest_playwright"], "environment_mode": "separate",
  "environment": {"network_mode": "no-network", "build_timeout_sec": 600, "docker_image": "ghcr.io/example/grader:latest", "os": "linux", "cpus": 2,
   "memory_mb": 1024, "storage_mb": 10240, "gpus": 0},
  "collect": [{"command": "git diff > /logs/artifacts/model.patch", "service": "main", "timeout_sec": 60}],
  "judge": {"model": "claude-sonnet-4-6", "rubric_path": "tests/rubric.toml", "input_dir": "/app", "input_type": "deliverables", "context": "c"},
  "hardening": {"cleanup_conftests": false}},
 "environment": {"network_mode": "allowlist", "allowed_hosts": ["datasets.example.com"], "build_timeout_sec": 600,
  "docker_image": "ghcr.io/example/task:latest", "os": "linux", "cpus": 4, "memory_mb": 4096, "storage_mb": 8192, "gpus": 1, "gpu_types": ["T4", "A100"],
  "tpu": {"type": "v6e", "topology": "2x4"},
  "mcp_servers": [{"name": "atlas", "transport": "streamable-http", "url": "http://localhost:18765/mcp",
   "headers": [{"name": "x_run", "value": "smoke"}, {"name": "a", "value": "b"}], "tools": ["search", "fetch"], "include_tags": ["safe"], "exclude_tags": ["admin"]}],
  "env": [{"name": "DATASET", "value": "${DATASET:-sample}"}], "skills_dir": "/skills", "workdir": "/workspace", "bugswarm_image_tag": "tag",
  "healthcheck": {"command": "python -m app.healthcheck", "interval_sec": 2, "timeout_sec": 10, "start_period_sec": 0, "start_interval_sec": 5, "retries": 5},
  "setup_commands": [{"command": "make", "timeout_sec": 5, "cwd": "/app", "env": [{"name": "B", "value": "${B}"}, {"name": "A", "value": "1"}], "user": "root",
   "service": "db", "host_lock": "lock", "capture_dir": "/c", "capture_dir_b64_env": "C", "capture_dir_b64_env_file_var": "F"}]},
 "solution": {"env": [{"name": "SOLUTION_MODE", "value": "oracle"}], "timeout_sec": 1800},
 "multi_step_reward_strategy": "final",
 "steps": [
  {"name": "scaffold", "agent": {"timeout_sec": 30}, "verifier": {"timeout_sec": 15, "env": [{"name": "STEP", "value": "scaffold"}]},
   "min_reward": {"reward": 0.5}, "artifacts": [{"source": "/app/scaffold.txt", "exclude": ["*.pyc"], "service": "main"}]},
  {"name": "polish", "agent": {}, "verifier": {}, "min_reward": {"reward": 1, "style": 0.25},
   "healthcheck": {"command": "true", "interval_sec": 5, "timeout_sec": 30, "start_period_sec": 0, "start_interval_sec": 5, "retries": 3}}],
 "artifacts": [{"source": "/logs/artifacts", "destination": "artifacts"}, {"source": "/app/out.txt"}],
 "reward": {"weights": [1, 0.5]}
}`

// Given every table and field, when they are read and stored as JSON, then every value is
// there, and reading the JSON gives the same configuration.
func TestEveryTable(t *testing.T) {
	c := accepted(t, everyTable)
	stored, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(stored, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(everyTableJSON), &want); err != nil {
		t.Fatal(err)
	}
	equal(t, "configuration", got, want)
	equal(t, "metadata", string(c.Metadata), `{"category":"schema","when":"2026-01-02","big":9223372036854775807,"hex":31,"custom":{"kept":true}}`)

	var again Config
	if err := json.Unmarshal(stored, &again); err != nil {
		t.Fatal(err)
	}
	restored, err := json.Marshal(again)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "stored twice", string(restored), string(stored))
	equal(t, "chips", c.Environment.TPU.Chips(), 8)
}
