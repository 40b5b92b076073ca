package tasks

import (
	"encoding/json"
	"math"
	"slices"
	"time"
)

// Config is the content of a task.toml. Its names are those of the file, except that deprecated and
// second spellings have become the current ones. As JSON it can be stored and read again; values
// with ${VAR} stay as they are.
type Config struct {
	SchemaVersion           string          `json:"schema_version"`
	Source                  string          `json:"source,omitempty"`
	Task                    Package         `json:"task,omitzero"`
	Metadata                json.RawMessage `json:"metadata,omitempty"`
	Agent                   Agent           `json:"agent"`
	Verifier                Verifier        `json:"verifier"`
	Environment             Environment     `json:"environment"`
	Solution                Solution        `json:"solution"`
	MultiStepRewardStrategy string          `json:"multi_step_reward_strategy,omitempty"`
	Steps                   []Step          `json:"steps,omitempty"`
	Artifacts               []Artifact      `json:"artifacts,omitempty"`
	Reward                  json.RawMessage `json:"reward,omitempty"`
	// places are unknown keys that seem to say where the task is to run.
	places []string
}

// Seconds is a duration as task.toml has it.
type Seconds float64

// Duration returns the same as a duration. A negative one becomes 0, and one that is too long the
// longest duration.
func (s Seconds) Duration() time.Duration {
	switch {
	case s <= 0:
		return 0
	case float64(s) >= math.MaxInt64/float64(time.Second):
		return math.MaxInt64
	}
	return time.Duration(float64(s) * float64(time.Second))
}

// KeyValue is one variable or header. They are lists, not maps, so that the order of the file is
// kept.
type KeyValue struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Package is the table [task].
type Package struct {
	Name        string   `json:"name"`
	Version     string   `json:"version,omitempty"`
	Description string   `json:"description,omitempty"`
	Authors     []Author `json:"authors,omitempty"`
	Keywords    []string `json:"keywords,omitempty"`
}

// Author is an author of a task.
type Author struct {
	Name  string `json:"name"`
	Email string `json:"email,omitempty"`
}

// The network modes.
const (
	NetworkPublic    = "public"
	NetworkNone      = "no-network"
	NetworkAllowlist = "allowlist"
)

// Network says what may be reached on the network. In [environment] the mode is always set;
// elsewhere an empty one means the environment's.
type Network struct {
	NetworkMode  string   `json:"network_mode,omitempty"`
	AllowedHosts []string `json:"allowed_hosts,omitempty"`
}

// Agent is the table [agent] of the task or of a step.
type Agent struct {
	// TimeoutSec is 0 if the task sets none.
	TimeoutSec   Seconds `json:"timeout_sec,omitempty"`
	PromptPrefix string  `json:"prompt_prefix,omitempty"`
	User         string  `json:"user,omitempty"`
	Network
}

func (a Agent) over(base Agent) Agent {
	out := Agent{TimeoutSec: or(a.TimeoutSec, base.TimeoutSec),
		PromptPrefix: or(a.PromptPrefix, base.PromptPrefix), User: or(a.User, base.User), Network: a.Network}
	if a.NetworkMode == "" {
		out.Network = base.Network
	}
	return out
}

// The values of verifier.environment_mode.
const (
	VerifierShared   = "shared"
	VerifierSeparate = "separate"
)

// The values of verifier.type.
const (
	VerifierScript   = "test-script"
	VerifierLLMJudge = "llm-judge"
)

// Verifier is the table [verifier] of the task or of a step. In a step, keys that are not set are
// zero: see [Task.Stages].
type Verifier struct {
	Type       string     `json:"type,omitempty"`
	TimeoutSec Seconds    `json:"timeout_sec,omitempty"`
	Env        []KeyValue `json:"env,omitempty"`
	// RewardRange is the range of a reward, the lowest and the highest; nil means 0 to 1.
	RewardRange *[2]float64 `json:"reward_range,omitempty"`
	User        string      `json:"user,omitempty"`
	Network
	Service         string       `json:"service,omitempty"`
	PytestPlugins   []string     `json:"pytest_plugins,omitempty"`
	EnvironmentMode string       `json:"environment_mode,omitempty"`
	Environment     *Environment `json:"environment,omitempty"`
	Collect         []Collect    `json:"collect,omitempty"`
	Judge           *Judge       `json:"judge,omitempty"`
	Hardening       *Hardening   `json:"hardening,omitempty"`
	// ExpectedSkills is verifier.memory.expected_skills. It would give the answer away, so it is in no
	// document.
	ExpectedSkills []string `json:"-"`
}

// Separate reports whether the tests run in an environment of their own, which is a fresh one.
func (v Verifier) Separate() bool {
	return v.EnvironmentMode == VerifierSeparate || v.EnvironmentMode == "" && v.Environment != nil
}

// Reaches returns the network of the tests: that of the verifier itself, or that of its own
// environment. An empty mode means the task's environment.
func (v Verifier) Reaches() Network {
	if v.NetworkMode == "" && v.Separate() && v.Environment != nil {
		return v.Environment.Network
	}
	return v.Network
}

// Range returns the range of a reward.
func (v Verifier) Range() [2]float64 {
	if v.RewardRange == nil {
		return [2]float64{0, 1}
	}
	return *v.RewardRange
}

func (v Verifier) over(base Verifier) Verifier {
	v.Type, v.TimeoutSec, v.User, v.Service =
		or(v.Type, base.Type), or(v.TimeoutSec, base.TimeoutSec), or(v.User, base.User), or(v.Service, base.Service)
	v.RewardRange, v.Judge, v.Hardening =
		or(v.RewardRange, base.RewardRange), or(v.Judge, base.Judge), or(v.Hardening, base.Hardening)
	if v.NetworkMode == "" {
		v.Network = base.Network
	}
	if v.EnvironmentMode == "" && v.Environment == nil {
		v.EnvironmentMode, v.Environment = base.EnvironmentMode, base.Environment
	}
	if v.PytestPlugins == nil {
		v.PytestPlugins = base.PytestPlugins
	}
	if v.Collect == nil {
		v.Collect = base.Collect
	}
	if v.ExpectedSkills == nil {
		v.ExpectedSkills = base.ExpectedSkills
	}
	env := slices.Clone(base.Env)
	for _, kv := range v.Env {
		env = set(env, kv)
	}
	v.Env = env
	return v
}

// set replaces the variable of the same name, or adds it.
func set(env []KeyValue, kv KeyValue) []KeyValue {
	if i := slices.IndexFunc(env, func(e KeyValue) bool { return e.Name == kv.Name }); i >= 0 {
		env[i] = kv
		return env
	}
	return append(env, kv)
}

func or[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// Collect is a command that runs when the agent has ended, before artifacts are collected.
type Collect struct {
	Command    string  `json:"command"`
	Service    string  `json:"service"`
	TimeoutSec Seconds `json:"timeout_sec"`
	User       string  `json:"user,omitempty"`
}

// Judge is the table [verifier.judge], used with type "llm-judge".
type Judge struct {
	Model      string `json:"model"`
	RubricPath string `json:"rubric_path"`
	InputDir   string `json:"input_dir"`
	InputType  string `json:"input_type"`
	Context    string `json:"context,omitempty"`
}

// Hardening is the table [verifier.hardening].
type Hardening struct {
	CleanupConftests bool `json:"cleanup_conftests"`
}

// Environment is the table [environment] (or [sandbox]) of the task, or that of a separate
// verifier.
type Environment struct {
	Network
	BuildTimeoutSec  Seconds        `json:"build_timeout_sec"`
	DockerImage      string         `json:"docker_image,omitempty"`
	OS               string         `json:"os"`
	CPUs             float64        `json:"cpus"`
	MemoryMB         int            `json:"memory_mb"`
	StorageMB        int            `json:"storage_mb"`
	GPUs             int            `json:"gpus"`
	GPUTypes         []string       `json:"gpu_types,omitempty"`
	TPU              *TPU           `json:"tpu,omitempty"`
	MCPServers       []MCPServer    `json:"mcp_servers,omitempty"`
	Env              []KeyValue     `json:"env,omitempty"`
	SkillsDir        string         `json:"skills_dir,omitempty"`
	Workdir          string         `json:"workdir,omitempty"`
	BugswarmImageTag string         `json:"bugswarm_image_tag,omitempty"`
	Healthcheck      *Healthcheck   `json:"healthcheck,omitempty"`
	SetupCommands    []SetupCommand `json:"setup_commands,omitempty"`
	// base says that the image was named by benchflow's key image, which names the base if there is a
	// Dockerfile.
	base bool
	// key is the place of the table in the file, such as sandbox or steps[0].verifier.environment.
	key string
	// limits are the CPUs, MemoryMB and StorageMB that are in the file.
	limits Limits
	// places are unknown keys that seem to say where the task is to run.
	places []string
}

// Limits are how much of a machine a task may use, according to its file. 0 means that the file
// does not say, and the value in [Environment] is only the default of a cloud.
type Limits struct {
	CPUs      float64
	MemoryMB  int
	StorageMB int
}

// Limits returns the limits that are in the file.
func (e *Environment) Limits() Limits { return e.limits }

// TPU is a slice of accelerators.
type TPU struct {
	Type     string `json:"type"`
	Topology string `json:"topology"`
}

// Healthcheck is a command that succeeds when the environment is ready. Failures within
// StartPeriodSec of the start do not count, and the time between tries is StartIntervalSec then.
// Afterwards Retries failures in a row are too many.
type Healthcheck struct {
	Command          string  `json:"command"`
	IntervalSec      Seconds `json:"interval_sec"`
	TimeoutSec       Seconds `json:"timeout_sec"`
	StartPeriodSec   Seconds `json:"start_period_sec"`
	StartIntervalSec Seconds `json:"start_interval_sec"`
	Retries          int     `json:"retries"`
}

// SetupCommand is a command that prepares the environment before the agent starts.
type SetupCommand struct {
	Command                 string     `json:"command"`
	TimeoutSec              Seconds    `json:"timeout_sec"`
	Cwd                     string     `json:"cwd,omitempty"`
	Env                     []KeyValue `json:"env,omitempty"`
	User                    string     `json:"user,omitempty"`
	Service                 string     `json:"service"`
	HostLock                string     `json:"host_lock,omitempty"`
	CaptureDir              string     `json:"capture_dir,omitempty"`
	CaptureDirB64Env        string     `json:"capture_dir_b64_env,omitempty"`
	CaptureDirB64EnvFileVar string     `json:"capture_dir_b64_env_file_var,omitempty"`
}

// Solution is the table [solution] (or [oracle]).
type Solution struct {
	Env        []KeyValue `json:"env,omitempty"`
	TimeoutSec Seconds    `json:"timeout_sec,omitempty"`
}

// Step is one of [[steps]], as the file has it; [Task.Stages] completes it.
type Step struct {
	Name        string       `json:"name"`
	Agent       Agent        `json:"agent"`
	Verifier    Verifier     `json:"verifier"`
	MinReward   MinReward    `json:"min_reward,omitempty"`
	Healthcheck *Healthcheck `json:"healthcheck,omitempty"`
	Artifacts   []Artifact   `json:"artifacts,omitempty"`
}

// Artifact is a file or folder of the environment that is kept when the agent has ended.
type Artifact struct {
	Source string `json:"source"`
	// Destination is relative to the folder for artifacts; empty means the path of Source.
	Destination string   `json:"destination,omitempty"`
	Exclude     []string `json:"exclude,omitempty"`
	Service     string   `json:"service,omitempty"`
}
