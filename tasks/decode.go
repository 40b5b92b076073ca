package tasks

import (
	"path"
	"regexp"
	"strings"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/evalrun/evalrun/internal/input"
)

// newestMinor is the newest minor version of schema 1 that this package knows (Harbor 0.21).
const newestMinor = 4

var (
	versionForm  = regexp.MustCompile(`^([0-9]{1,6})\.([0-9]{1,6})(?:\.[0-9]+)*$`)
	packageName  = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]*/[a-zA-Z0-9][a-zA-Z0-9._-]*$`)
	variableName = regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`)
)

// readConfig reads task.toml. The rules are those of benchflow's task/config.py and of Harbor's
// schema 1.4, whichever is milder; docs/tasks.md lists the exceptions.
func readConfig(r *input.Reader, root *input.Node) Config {
	f := open(r, root)
	c := Config{
		SchemaVersion: readVersion(f),
		Source:        f.String("source", ""),
		Task:          readPackage(r, f.table("task")),
		Metadata:      f.table("metadata").JSON(),
		Reward:        f.table("reward").JSON(),
		Agent:         readAgent(r, f.table("agent")),
		Verifier:      readVerifier(r, f.table("verifier")),
		Environment:   readEnvironment(r, f.either("environment", "sandbox")),
		Solution:      readSolution(r, f.either("solution", "oracle")),
		Steps:         readSteps(r, f.tables("steps")),
		Artifacts:     readArtifacts(r, f.tables("artifacts")),
	}
	c.MultiStepRewardStrategy = f.Enum("multi_step_reward_strategy", "", StrategyMean, StrategyFinal)
	f.Ignore("multi_step_reward_mode") // before schema 1.3; Harbor drops it
	c.places = f.places()
	f.Done()

	v := &c.Verifier
	v.Type, v.TimeoutSec, v.Service = or(v.Type, VerifierScript), or(v.TimeoutSec, 600), or(v.Service, mainService)
	return c
}

func readVersion(f fields) string {
	f.Ignore("version") // the older name, which counts only where the newer is absent
	name := "schema_version"
	if !f.Has(name) {
		name = "version"
	}
	version := f.String(name, "1.3")
	m := versionForm.FindStringSubmatch(version)
	n := f.Get(name)
	switch {
	case m == nil:
		f.r.Warnf(n, "expected a version such as \"1.%d\", got %q; the task can be checked, but not run",
			newestMinor, version)
	case unknownMajor(version):
		f.r.Warnf(n,
			"version %s is newer than 1.%d, the newest that this evalrun knows, and is read as that, as Harbor does",
			version, newestMinor)
	case m[1] != "1":
		f.r.Warnf(n, "version %s is not known; the file is read as one of version 1.%d", version, newestMinor)
	case len(m[2]) > 1 || m[2] > "4":
		f.r.Warnf(n, "version %s is newer than 1.%d, the newest that this evalrun knows", version, newestMinor)
	}
	return version
}

// unknownMajor reports whether keys may have another meaning in this version than in the known
// ones.
func unknownMajor(version string) bool {
	m := versionForm.FindStringSubmatch(version)
	return m != nil && (m[1] > "1" || len(m[1]) > 1)
}

func readPackage(r *input.Reader, n *input.Node) Package {
	if n == nil {
		return Package{}
	}
	f := open(r, n)
	p := Package{Name: f.RequiredString("name"), Version: f.String("version", ""),
		Description: f.String("description", ""), Keywords: f.Strings("keywords")}
	if p.Name != "" && (!packageName.MatchString(p.Name) || strings.Contains(p.Name, "..")) {
		r.Errorf(f.Get("name"), "expected a name such as \"org/task\", of letters, digits, '.', '_' and '-', got %q", p.Name)
	}
	for _, item := range f.tables("authors") {
		a := open(r, item)
		p.Authors = append(p.Authors, Author{Name: a.RequiredString("name"), Email: a.String("email", "")})
		a.Done()
	}
	f.Done()
	return p
}

func readAgent(r *input.Reader, n *input.Node) Agent {
	if n == nil {
		return Agent{}
	}
	f := open(r, n)
	a := Agent{TimeoutSec: f.timeout(0), PromptPrefix: f.text("prompt_prefix"), User: f.user(), Network: readNetwork(f)}
	f.Done()
	return a
}

// readVerifier leaves keys that are not set zero, so that a step can take them from the task.
func readVerifier(r *input.Reader, n *input.Node) Verifier {
	if n == nil {
		return Verifier{}
	}
	f := open(r, n)
	v := Verifier{
		Type:          f.Enum("type", "", VerifierScript, VerifierLLMJudge),
		TimeoutSec:    f.timeout(0),
		Env:           f.keyValues("env"),
		RewardRange:   readRange(f),
		User:          f.user(),
		Network:       readNetwork(f),
		Service:       f.service(""),
		PytestPlugins: f.Strings("pytest_plugins"),
	}
	mode := "environment_mode"
	if f.Has("sandbox_mode") {
		if f.Has(mode) {
			r.Errorf(f.Get(mode), "the file declares both %q and %q, which mean the same; keep one of them",
				mode, "sandbox_mode")
		}
		mode = "sandbox_mode"
	}
	v.EnvironmentMode = f.Enum(mode, "", VerifierShared, VerifierSeparate)
	if e := f.either("environment", "sandbox"); e != nil {
		if v.EnvironmentMode == VerifierShared {
			r.Errorf(e,
				"a verifier that shares the agent's environment cannot have one of its own; remove the table, or set %s = %q",
				mode, VerifierSeparate)
		}
		environment := readEnvironment(r, e)
		v.Environment = &environment
	}
	for _, item := range f.tables("collect") {
		c := open(r, item)
		v.Collect = append(v.Collect, Collect{Command: c.RequiredString("command"), Service: c.service(mainService),
			TimeoutSec: c.timeout(60), User: c.user()})
		c.Done()
	}
	if judge := f.table("judge"); judge != nil || v.Type == VerifierLLMJudge {
		if judge == nil {
			judge = &input.Node{Kind: input.Object}
		}
		j := open(r, judge)
		v.Judge = &Judge{Model: j.String("model", "claude-sonnet-4-6"),
			RubricPath: j.String("rubric_path", "tests/rubric.toml"), InputDir: j.String("input_dir", defaultWorkdir),
			InputType: j.Enum("input_type", "deliverables", "deliverables"), Context: j.String("context", "")}
		j.Done()
	}
	if memory := f.table("memory"); memory != nil {
		m := open(r, memory)
		v.ExpectedSkills = m.Strings("expected_skills")
		m.Done()
	}
	if hardening := f.table("hardening"); hardening != nil {
		h := open(r, hardening)
		v.Hardening = &Hardening{CleanupConftests: h.Bool("cleanup_conftests", true)}
		h.Done()
	}
	f.Done()
	return v
}

// readRange reads reward_range, which may widen 0 to 1 but not narrow it.
func readRange(f fields) *[2]float64 {
	n := f.Optional("reward_range", input.Array)
	if n == nil {
		return nil
	}
	var bounds [2]float64
	ok := len(n.Items) == 2
	for i := 0; ok && i < 2; i++ {
		ok = n.Items[i].Kind == input.Number
		if ok {
			bounds[i], ok = finite(n.Items[i].Text)
		}
	}
	if !ok || bounds[0] > 0 || bounds[1] < 1 {
		f.r.Errorf(n, "expected the lowest and the highest reward, such as [-1, 1]; the range must contain 0 to 1")
		return nil
	}
	return &bounds
}

func readSolution(r *input.Reader, n *input.Node) Solution {
	if n == nil {
		return Solution{}
	}
	f := open(r, n)
	s := Solution{Env: f.keyValues("env"), TimeoutSec: f.timeout(0)}
	// Variables once stood directly in the table.
	for _, m := range n.Members {
		if m.Value.Kind != input.String || !variableName.MatchString(m.Key) {
			continue
		}
		f.Get(m.Key)
		for _, kv := range s.Env {
			if kv.Name == m.Key && kv.Value != m.Value.Text {
				r.Errorf(m.Value, "Conflicting values for the variable %s: here and in env", m.Key)
			}
		}
		s.Env = set(s.Env, KeyValue{Name: m.Key, Value: m.Value.Text})
	}
	f.Done()
	return s
}

func readSteps(r *input.Reader, items []*input.Node) []Step {
	var steps []Step
	seen := map[string]string{}
	for _, item := range items {
		f := open(r, item)
		s := Step{
			Name:        f.RequiredString("name"),
			Agent:       readAgent(r, f.table("agent")),
			Verifier:    readVerifier(r, f.table("verifier")),
			MinReward:   readMinReward(f),
			Healthcheck: readHealthcheck(r, f.table("healthcheck")),
			Artifacts:   readArtifacts(r, f.tables("artifacts")),
		}
		f.Done()
		switch {
		case s.Name == "":
			continue // RequiredString has reported it, and there is no such folder
		case strings.ContainsAny(s.Name, "/\\\x00") || s.Name == "." || s.Name == "..":
			r.Errorf(f.Get("name"), "expected the name of a folder in steps/, got %q", s.Name)
			continue
		}
		// Some file systems make no difference between a and A, or between the two ways to write é.
		folder := cases.Fold().String(norm.NFC.String(s.Name))
		if other, ok := seen[folder]; ok {
			r.Errorf(f.Get("name"), "there is another step %q; their folder and their artifacts would be the same", other)
		} else {
			seen[folder] = s.Name
		}
		steps = append(steps, s)
	}
	return steps
}

func readMinReward(f fields) MinReward {
	n := f.Get("min_reward")
	switch {
	case n == nil || n.Kind == input.Null:
		return nil
	case n.Kind != input.Object:
		if v, n := f.number("min_reward"); n != nil {
			return MinReward{rewardKey: v}
		}
		return nil
	}
	out := MinReward{}
	keys := open(f.r, n)
	for _, m := range n.Members {
		if v, n := keys.number(m.Key); n != nil {
			out[m.Key] = v
		}
	}
	return out
}

func readArtifacts(r *input.Reader, items []*input.Node) []Artifact {
	var out []Artifact
	for _, item := range items {
		if item.Kind == input.String {
			a := Artifact{Source: item.Text}
			checkArtifact(r, item, item, a)
			out = append(out, a)
			continue
		}
		f := open(r, item)
		a := Artifact{Source: f.RequiredString("source"), Destination: f.String("destination", ""),
			Exclude: f.Strings("exclude"), Service: f.service("")}
		if n := f.Get("source"); n != nil {
			checkArtifact(r, n, or(f.Get("destination"), n), a)
		}
		f.Done()
		out = append(out, a)
	}
	return out
}

// checkArtifact makes sure that an artifact cannot leave the folder for artifacts.
func checkArtifact(r *input.Reader, source, destination *input.Node, a Artifact) {
	if hasParent(a.Source) {
		r.Errorf(source, "expected a path without \"..\", got %q", a.Source)
	}
	d := a.Destination
	switch {
	case d == "":
	case path.IsAbs(d) || hasParent(d) || strings.Contains(d, `\`) || path.Clean(d) == ".":
		r.Errorf(destination, "expected a path below the folder for artifacts, without \"..\", got %q", d)
	case path.Clean(d) == "manifest.json":
		r.Errorf(destination, "manifest.json is the name of the list of artifacts; choose another one")
	}
	if a.Service != "" && a.Service != mainService && !path.IsAbs(a.Source) {
		r.Errorf(source, "expected an absolute path, as the artifact is in the service %q, got %q", a.Service, a.Source)
	}
}

func hasParent(p string) bool {
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			return true
		}
	}
	return false
}
