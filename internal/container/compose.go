package container

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// ComposeFile is the name of the file beside a task's Dockerfile that names the services which run
// beside the agent. A file of another name is data.
const ComposeFile = "docker-compose.yaml"

// mainService is the service in which the agent works.
const mainService = "main"

// Compose is a compose file that was read and checked. Nothing that it says reaches this machine
// beyond the folder in which it lies.
type Compose struct {
	// Env are the variables of main, as NAME=value.
	Env []string
	// Healthcheck is main's healthcheck; nil if it has none.
	Healthcheck *sandbox.Healthcheck

	networks []string          // of main
	volumes  map[string]string // of main, by their inside paths
	services []service
	project  map[string]any // what the engine's compose is given, without main
}

// Names are the services beside main.
func (c *Compose) Names() (names []string) {
	for _, s := range c.services {
		names = append(names, s.name)
	}
	return names
}

// Built are the names of the images that services are built as.
func (c *Compose) Built() (names []string) {
	for _, s := range c.services {
		if one := c.definition(s.name); one["build"] != nil {
			names = append(names, one["image"].(string))
		}
	}
	return names
}

// definition is what the file says of a service beside main, as an engine's compose gets it.
func (c *Compose) definition(name string) map[string]any {
	return c.project["services"].(map[string]any)[name].(map[string]any)
}

// service is one of the services beside main.
type service struct {
	name string
	// volumes are their names by their inside paths; empty for one without a name.
	volumes map[string]string
	health  *sandbox.Healthcheck
	// completes says that main or another service waits for the service's successful end.
	completes bool
	// after are the services that are awaited before the service starts.
	after []string
}

// ReadCompose reads a compose file. lookup gives the variables that may be used in it beside those
// that Harbor sets; the environment is not used. The error is [input.Problems]: every key that is
// refused, with its line.
func ReadCompose(file string, lookup func(name string) (string, bool)) (*Compose, error) {
	data, err := input.ReadFile(file, input.MaxFile)
	if err != nil {
		return nil, input.Unreadable(file, err)
	}
	doc, err := input.Parse(file, data)
	if err != nil {
		return nil, input.Problems{err.(input.Problem)} //nolint:errorlint // Parse says that it is one
	}
	dir, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return nil, err
	}
	r := &composeReader{Reader: &input.Reader{}, lookup: lookup, dir: dir, out: &Compose{networks: []string{"default"}}}
	r.expand(doc)
	r.document(doc)
	return r.out, r.Problems.Err(false)
}

// composeReader checks a document and collects the parts of it that are passed on.
type composeReader struct {
	*input.Reader
	lookup func(name string) (string, bool)
	dir    string // absolute
	out    *Compose
}

// harbors are the variables that Harbor sets for compose files. Where Harbor gives folders of the
// machine for the logs, these give the inside paths at which the logs are mounted anyway.
var harbors = map[string]string{
	"MAIN_IMAGE_NAME": mainImage, "PREBUILT_IMAGE_NAME": mainImage, "TEST_DIR": "/tests",
	"HOST_VERIFIER_LOGS_PATH": "/logs/verifier", "ENV_VERIFIER_LOGS_PATH": "/logs/verifier",
	"HOST_AGENT_LOGS_PATH": "/logs/agent", "ENV_AGENT_LOGS_PATH": "/logs/agent",
	"HOST_ARTIFACTS_PATH": "/logs/artifacts", "ENV_ARTIFACTS_PATH": "/logs/artifacts",
	"CPUS": "0", "MEMORY": "0", // main's limits are those of task.toml
}

// mainImage stands for the image of main.
const mainImage = "evalrun-main"

// variable gives the value of a variable.
func (r *composeReader) variable(name string) (string, bool) {
	if name == "CONTEXT_DIR" {
		return r.dir, true
	}
	if value, ok := harbors[name]; ok {
		return value, true
	}
	return r.lookup(name)
}

var composeVariable = regexp.MustCompile(`\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)(:?-([^}]*))?\}|\$([A-Za-z_][A-Za-z0-9_]*)|\$`)

// composeName matches the names that things in a compose file may have.
var composeName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)

// expand replaces variables by their values everywhere.
func (r *composeReader) expand(n *input.Node) {
	for _, item := range n.Items {
		r.expand(item)
	}
	for _, m := range n.Members {
		r.expand(m.Value)
	}
	if n.Kind != input.String {
		return
	}
	n.Text = composeVariable.ReplaceAllStringFunc(n.Text, func(use string) string {
		m := composeVariable.FindStringSubmatch(use)
		name := m[1] + m[4]
		switch value, ok := r.variable(name); {
		case use == "$$" || use == "$":
			return "$"
		case ok:
			return value
		case m[2] != "":
			return m[3]
		}
		r.Errorf(n, "the variable %s is not set; give it a value as ${%s:-value}, or pass it with --env %s", name, name, name)
		return ""
	})
}

func (r *composeReader) document(doc *input.Node) {
	f := r.Object(doc)
	f.Ignore("version", "name")
	services := f.Required("services", input.Object)
	project := map[string]any{"services": map[string]any{}}
	project["networks"] = r.resources(f.Optional("networks", input.Object), "network")
	project["volumes"] = r.resources(f.Optional("volumes", input.Object), "volume")
	project["networks"].(map[string]any)["default"] = map[string]any{}
	r.refuseRest(f)
	r.out.project = project
	if services == nil {
		return
	}
	for _, m := range services.Members {
		if !composeName.MatchString(m.Key) {
			r.Errorf(m.Value, "%q cannot be the name of a service", m.Key)
		}
		if m.Key == mainService {
			r.main(m.Value)
		} else {
			project["services"].(map[string]any)[m.Key] = r.service(m.Key, m.Value)
		}
	}
	r.depend(services)
}

// resources reads the networks or volumes of the file. Only those that are made for it are allowed.
func (r *composeReader) resources(n *input.Node, kind string) map[string]any {
	out := map[string]any{}
	if n == nil {
		return out
	}
	for _, m := range n.Members {
		if !composeName.MatchString(m.Key) {
			r.Errorf(m.Value, "%q cannot be the name of a %s", m.Key, kind)
			continue
		}
		out[m.Key] = map[string]any{}
		if m.Value.Kind == input.Null {
			continue
		}
		f := r.Object(m.Value)
		f.Ignore("name", "labels", "internal")
		if d := f.Get("driver"); d != nil && d.Text != "bridge" && d.Text != "local" {
			r.Errorf(d, "a %s with the driver %q is not made; leave the driver out", kind, d.Text)
		}
		r.refuseRest(f)
	}
	return out
}

// refusals give the reasons for refusing keys that would give a task rights on this machine.
var refusals = map[string]string{
	"privileged":          "a service with all rights would have this machine",
	"cap_add":             "a service gets no more rights than its engine gives by default",
	"devices":             "devices of this machine are not given",
	"device_cgroup_rules": "devices of this machine are not given",
	"gpus":                "set environment.gpus in task.toml instead",
	"security_opt":        "what the engine protects cannot be taken away",
	"network_mode":        "a service has the networks of its file",
	"pid":                 "a service does not see the processes of others",
	"ipc":                 "a service does not share memory with others",
	"uts":                 "a service has a name of its own",
	"userns_mode":         "users are as the engine has them",
	"cgroup":              "control groups are as the engine has them",
	"cgroup_parent":       "control groups are as the engine has them",
	"volumes_from":        "name the volumes instead",
	"sysctls":             "the kernel's settings are not changed",
	"runtime":             "the engine's own runtime is used",
	"external":            "only what the file itself makes is used",
	"driver_opts":         "a volume could be a folder of this machine with them",
	"extends":             "write the service out",
	"include":             "write the services into this file",
	"secrets":             "pass variables instead",
	"configs":             "build files into the image instead",
	"external_links":      "only services of this file can be reached",
}

// refuseRest refuses every key of an object that nobody has read.
func (r *composeReader) refuseRest(f *input.Fields) {
	for _, m := range f.Unknown() {
		if strings.HasPrefix(m.Key, "x-") {
			continue
		}
		why, known := refusals[m.Key]
		switch {
		case known && m.Value.Kind == input.Bool && m.Value.Text == "false":
		case known:
			r.Errorf(m.Value, "%s is refused: %s", m.Key, why)
		default:
			r.Errorf(m.Value, "the key %s is not supported in a task's %s", m.Key, ComposeFile)
		}
	}
}

// passedOn are the keys that are passed on as they are. ignored are those that change nothing here:
// evalrun gives every container its name, publishes no port and restarts nothing.
var (
	passedOn = []string{
		"command", "entrypoint", "working_dir", "user", "hostname", "stop_signal", "stop_grace_period", "init",
		"mem_limit", "cpus", "shm_size", "read_only", "expose", "tmpfs", "tty", "stdin_open", "platform",
	}
	ignored = []string{"container_name", "restart", "ports", "logging",
		"labels", "deploy", "pull_policy", "profiles", "ulimits", "depends_on"}
)

// service checks a service beside main and returns the part that is passed on.
func (r *composeReader) service(name string, n *input.Node) map[string]any {
	f := r.Object(n)
	out := map[string]any{}
	f.Ignore(ignored...)
	for _, key := range passedOn {
		if v := f.Get(key); v != nil {
			out[key] = plain(v)
		}
	}
	image := f.String("image", "")
	switch b := f.Get("build"); {
	case b != nil:
		build := r.build(b)
		name, err := builtImage(build)
		if err != nil {
			r.Errorf(b, "the build context cannot be read: %v", err)
		}
		out["build"], out["image"] = build, name
	case image == mainImage:
		r.Errorf(f.Get("image"), "the image of main is run for main alone; build one of this service")
	case image != "":
		out["image"] = image
	default:
		r.Errorf(n, "the service needs an image, or a folder to build one of")
	}
	if env := r.environment(f.Get("environment")); env != nil {
		out["environment"] = env
	}
	out["networks"] = r.networksOf(f.Get("networks"))
	volumes, own := r.volumesOf(f.Get("volumes"))
	out["volumes"] = own
	r.out.services = append(r.out.services,
		service{name: name, volumes: volumes, health: r.healthcheck(f.Get("healthcheck"))})
	r.refuseRest(f)
	return out
}

// main reads the settings of the service in which the agent works. evalrun runs its processes and
// decides on its network.
func (r *composeReader) main(n *input.Node) {
	f := r.Object(n)
	f.Ignore(ignored...)
	f.Ignore("command", "entrypoint", "expose", "init", "tty", "stdin_open",
		"platform", "hostname", "working_dir", "user", "stop_signal", "stop_grace_period")
	r.mainIsTheTasks(f)
	r.out.Env = r.environment(f.Get("environment"))
	r.out.networks = r.networksOf(f.Get("networks"))
	volumes, own := r.volumesOf(f.Get("volumes"))
	if len(own) > 0 {
		r.Errorf(f.Get("volumes"), "folders beside the file are not mounted into main; COPY them in the Dockerfile")
	}
	maps.DeleteFunc(volumes, func(_, name string) bool { return name == "" }) // what main writes is kept anyway
	r.out.volumes = volumes
	r.out.Healthcheck = r.healthcheck(f.Get("healthcheck"))
	r.refuseRest(f)
}

// mainIsTheTasks makes sure that main is made of the task's own image, which evalrun builds or
// pulls.
func (r *composeReader) mainIsTheTasks(f *input.Fields) {
	if image := f.String("image", ""); !f.Has("build") && image != "" && image != mainImage {
		r.Errorf(f.Get("image"), "main runs in the task's image; name %s as environment.docker_image in task.toml", image)
	}
	b := f.Get("build")
	if b == nil {
		return
	}
	built := r.build(b)
	if built == nil || len(built) == 1 && built["context"] == r.real() {
		return
	}
	if dockerfile, ok := built["dockerfile"]; !ok || dockerfile != "Dockerfile" ||
		len(built) != 2 || built["context"] != r.real() {
		r.Errorf(b,
			"main is built of environment/Dockerfile as it is: another folder, file, target or arguments are not supported")
	}
}

// depend reads from depends_on for which services each waits, and brings them into an order in which they can be
// started. main waits for all of them.
func (r *composeReader) depend(services *input.Node) {
	r.waitFor(services.Member(mainService))
	all := r.out.services
	for i := range all {
		all[i].after = r.waitFor(services.Member(all[i].name))
	}
	var ordered []service
	for len(ordered) < len(all) {
		before := len(ordered)
		for _, one := range all {
			started := func(name string) bool {
				return slices.ContainsFunc(ordered, func(s service) bool { return s.name == name })
			}
			if !started(one.name) && !slices.ContainsFunc(one.after, func(name string) bool { return !started(name) }) {
				ordered = append(ordered, one)
			}
		}
		if len(ordered) == before {
			r.Errorf(services, "some services wait for each other (depends_on), so none of them can be the first")
			return
		}
	}
	r.out.services = ordered
}

// waitFor returns the services that are named in depends_on of one. They are awaited, whatever the condition: it
// only says whether that is until they are healthy, or have ended well.
func (r *composeReader) waitFor(one *input.Node) (names []string) {
	depends := one.Member("depends_on")
	if depends == nil {
		return nil
	}
	wait := func(at *input.Node, name, condition string) {
		i := slices.IndexFunc(r.out.services, func(s service) bool { return s.name == name })
		if i < 0 {
			r.Errorf(at, "there is no service %q to wait for", name)
			return
		}
		names = append(names, name)
		if condition == "service_completed_successfully" {
			r.out.services[i].completes = true
		}
	}
	for _, item := range depends.Items {
		wait(item, item.Text, "")
	}
	for _, m := range depends.Members {
		condition := ""
		if c := m.Value.Member("condition"); c != nil {
			condition = c.Text
		}
		wait(m.Value, m.Key, condition)
	}
	return names
}
