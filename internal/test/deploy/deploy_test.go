package deploy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/evalrun/evalrun/internal/testenv"
)

// container is what a manifest says of one container of evalrun.
type container struct {
	file    string
	args    []string
	env     []string
	probes  []string      // paths of the server
	grace   time.Duration // that it has after SIGTERM; 0 if nothing is said
	configs []string      // the contents of its --config
}

// Every command line of a manifest is one that the program takes, and every variable one that it reads; and there
// is time for --drain before a process is killed.
func TestTheProgramHasWhatManifestsName(t *testing.T) {
	t.Parallel()
	program := build(t)
	source := sources(t)
	for _, c := range containers(t) {
		if out, err := exec.Command(program, append(slices.Clone(c.args), "--help")...).CombinedOutput(); err != nil {
			t.Errorf("%s: evalrun %s: %v\n%s", c.file, strings.Join(c.args, " "), err, out)
		}
		for _, name := range c.env {
			if !strings.Contains(source, `"`+name+`"`) {
				t.Errorf("%s: no code reads the variable %s", c.file, name)
			}
		}
		if i := slices.Index(c.args, "--drain"); i >= 0 {
			if drain, err := time.ParseDuration(c.args[i+1]); err != nil || drain >= c.grace {
				t.Errorf("%s: --drain %s, and the process is killed after %s (%v)", c.file, c.args[i+1], c.grace, err)
			}
		}
	}
	if out, err := exec.Command(program, "worker", "--drian", "5m", "--help").CombinedOutput(); err == nil {
		t.Errorf("a flag that is misspelt was taken:\n%s", out)
	}
}

var serving = regexp.MustCompile(`serving http`)

// Each server of a manifest begins to listen with its configuration, where the manifest says, and answers its probes.
func TestServersBegin(t *testing.T) {
	t.Parallel()
	program := build(t)
	for _, c := range containers(t) {
		if c.args[0] != "serve" {
			continue
		}
		t.Run(c.file, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			args := slices.Clone(c.args)
			i := slices.Index(args, "--config") + 1
			if i == 0 || len(c.configs) != 1 {
				t.Fatalf("%d configurations of %v", len(c.configs), args)
			}
			args[i] = filepath.Join(dir, "serve.yaml")
			if err := os.WriteFile(args[i], []byte(c.configs[0]), 0o600); err != nil {
				t.Fatal(err)
			}
			port := freePort(t)
			i = slices.Index(args, "--listen") + 1
			if c.file != "serverless/Containerfile" { // whose port is $PORT
				args[i] = args[i][:strings.LastIndexByte(args[i], ':')+1] + port
			}
			server := exec.Command(program, args...)
			server.Dir = dir
			server.Env = append(os.Environ(), "EVALRUN_STORE="+filepath.Join(dir, "store"), "PORT="+port)
			stderr, err := server.StderrPipe()
			if err == nil {
				err = server.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = server.Process.Kill(); _ = server.Wait() }()
			lines, said := bufio.NewScanner(stderr), ""
			for !serving.MatchString(said) {
				if !lines.Scan() {
					t.Fatalf("it does not serve:\n%s", said)
				}
				said += lines.Text() + "\n"
			}
			go func() { _, _ = io.Copy(io.Discard, stderr) }()
			for _, path := range append(c.probes, "/healthz") {
				answer, err := http.Get("http://127.0.0.1:" + port + path)
				if err != nil {
					t.Fatal(err)
				}
				_ = answer.Body.Close()
				if answer.StatusCode != http.StatusOK {
					t.Errorf("%s: %s", path, answer.Status)
				}
			}
		})
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// The manifests follow the schemas of what reads them, and one with a misspelt key does not.
func TestSchemas(t *testing.T) {
	t.Parallel()
	python, compose := filepath.Join(".venv", "bin", "python"), os.Getenv("EVALRUN_COMPOSE_SCHEMA")
	_, err := os.Stat(python)
	if err == nil && compose == "" {
		err = errors.New("EVALRUN_COMPOSE_SCHEMA does not name the schema of compose files")
	}
	if err != nil && compose == "" {
		t.Skipf("%v: .ci/run deploy has it", err)
	}
	validate := func(files ...string) (string, error) {
		out, err := exec.Command(python, append([]string{"validate.py", "testdata/scaledobjects.yaml", compose}, files...)...).CombinedOutput()
		return string(out), err
	}
	files := manifests(t)
	if out, err := validate(files...); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, file := range files {
		data := testenv.ReadFile(t, file)
		for _, key := range []string{"depends_on:", "securityContext:", "cooldownPeriod:"} {
			if !strings.Contains(data, key) {
				continue
			}
			wrong := filepath.Join(t.TempDir(), "wrong.yaml")
			if err := os.WriteFile(wrong, []byte(strings.Replace(data, key, "x"+key, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := validate(wrong); err == nil {
				t.Errorf("%s with x%s follows the schemas:\n%s", file, key, out)
			}
		}
	}
}

// manifests are the files that schemas are about.
func manifests(t *testing.T) []string {
	t.Helper()
	top := filepath.Join(testenv.Top(t), "deploy")
	files, err := filepath.Glob(filepath.Join(top, "kubernetes", "*.yaml"))
	if err != nil || len(files) < 3 {
		t.Fatalf("%d manifests, %v", len(files), err)
	}
	return append(files, filepath.Join(top, "compose", "compose.yaml"))
}

func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := testenv.Build(dir, testenv.Evalrun); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "evalrun")
}

// sources is the code of the program.
func sources(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("git", "-C", testenv.Top(t), "grep", "-h", "-E", `"(EVALRUN|XDG)_[A-Z_]+"`, "--", "*.go", ":!*_test.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// containers are those of evalrun in all manifests.
func containers(t *testing.T) []container {
	t.Helper()
	top := filepath.Join(testenv.Top(t), "deploy")
	all := compose(t, top)
	configs := map[string]string{}
	for _, file := range manifests(t) {
		if strings.HasSuffix(file, "compose.yaml") {
			continue
		}
		name, err := filepath.Rel(top, file)
		if err != nil {
			t.Fatal(err)
		}
		for decoder := yaml.NewDecoder(strings.NewReader(testenv.ReadFile(t, file))); ; {
			var m manifest
			if err := decoder.Decode(&m); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for key, data := range m.Data {
				configs[key] = data
			}
			all = append(all, m.containers(name, configs)...)
		}
	}
	said := testenv.ReadFile(t, top, "serverless", "Containerfile")
	_, command, _ := strings.Cut(said, "\nCMD ")
	var args []string
	if err := yaml.Unmarshal([]byte(command), &args); err != nil {
		t.Fatal(err)
	}
	all = append(all, container{file: "serverless/Containerfile", args: args, configs: []string{testenv.ReadFile(t, top, "serverless", "serve.yaml")}})
	if len(all) != 7 {
		t.Errorf("%d containers of evalrun, expected 7", len(all))
	}
	return all
}

func compose(t *testing.T, top string) (all []container) {
	t.Helper()
	var file struct {
		Services map[string]struct {
			Command         []string
			Environment     map[string]string
			StopGracePeriod string `yaml:"stop_grace_period"`
		}
	}
	if err := yaml.Unmarshal([]byte(testenv.ReadFile(t, top, "compose", "compose.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	for name, s := range file.Services {
		if name == "postgres" {
			continue
		}
		c := container{file: "compose/" + name, args: s.Command, configs: []string{testenv.ReadFile(t, top, "compose", "serve.yaml")}}
		for variable := range s.Environment {
			c.env = append(c.env, variable)
		}
		if s.StopGracePeriod != "" {
			var err error
			if c.grace, err = time.ParseDuration(s.StopGracePeriod); err != nil {
				t.Error(err)
			}
		}
		all = append(all, c)
	}
	return all
}

// manifest is what a manifest of Kubernetes may have of containers.
type manifest struct {
	Kind string
	Data map[string]string
	Spec struct {
		Template    pod
		JobTemplate struct{ Spec struct{ Template pod } } `yaml:"jobTemplate"`
	}
}

type pod struct {
	Spec struct {
		Grace      int `yaml:"terminationGracePeriodSeconds"`
		Containers []struct {
			Args      []string
			Env       []struct{ Name string }
			Readiness probe `yaml:"readinessProbe"`
			Liveness  probe `yaml:"livenessProbe"`
		}
	}
}

type probe struct {
	HTTPGet struct{ Path string } `yaml:"httpGet"`
}

func (m manifest) containers(file string, configs map[string]string) (all []container) {
	for _, p := range []pod{m.Spec.Template, m.Spec.JobTemplate.Spec.Template} {
		for _, one := range p.Spec.Containers {
			c := container{file: file, args: one.Args, grace: time.Duration(p.Spec.Grace) * time.Second, configs: []string{configs["serve.yaml"]}}
			for _, variable := range one.Env {
				c.env = append(c.env, variable.Name)
			}
			for _, path := range []string{one.Readiness.HTTPGet.Path, one.Liveness.HTTPGet.Path} {
				if path != "" {
					c.probes = append(c.probes, path)
				}
			}
			all = append(all, c)
		}
	}
	return all
}
