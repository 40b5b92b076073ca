package tasks

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Capabilities are the abilities of the place in which a task is to run.
type Capabilities struct {
	// NoNetwork: processes can be kept off the network.
	NoNetwork bool
	// FileTree: there is a file tree for the task alone, so that files can be put at any absolute
	// path.
	FileTree bool
	// Images: the task can be run in its image.
	Images bool
	// NoImages says why it cannot be, although it could on another machine.
	NoImages string
	// Containers: an engine runs the task in a container, which is made from its image and may have
	// GPUs.
	Containers bool
	// Services: the services of a compose file run beside the task's container, which Containers says.
	Services bool
	// NoServices says why they do not, although they could in another isolation or on another machine.
	NoServices string
}

// Gap is a part of a task that cannot be executed, or in [Task.Notes] one that is executed
// differently.
type Gap struct {
	// Key is the key in the file, or the file.
	Key    string `json:"key"`
	Reason string `json:"reason"`
}

// String returns key and reason.
func (g Gap) String() string { return g.Key + ": " + g.Reason }

// Gaps returns the parts of the task that cannot be executed, sorted. A task with gaps must not be
// run: its score would mean something else than its author's.
func (t *Task) Gaps(can Capabilities) []Gap {
	g := &gaps{can: can}
	c := &t.Config
	if c.SchemaVersion != "" && !versionForm.MatchString(c.SchemaVersion) {
		g.add("schema_version", "version %q is none; the newest that is read is 1.%d", c.SchemaVersion, newestMinor)
	}
	g.network("agent", c.Agent.Network)
	g.user("agent", c.Agent.User)
	g.environment(&c.Environment, "environment")
	g.verifier("verifier", &c.Verifier)
	g.artifacts("artifacts", c.Artifacts)
	for i := range c.Steps {
		key := fmt.Sprintf("steps[%d]", i)
		g.network(key+".agent", c.Steps[i].Agent.Network)
		g.user(key+".agent", c.Steps[i].Agent.User)
		g.verifier(key+".verifier", &c.Steps[i].Verifier)
		g.artifacts(key+".artifacts", c.Steps[i].Artifacts)
	}
	g.folders(t)
	g.images(t)
	g.files(t)
	slices.SortStableFunc(g.found, func(a, b Gap) int { return strings.Compare(a.Key, b.Key) })
	return slices.Compact(g.found)
}

type gaps struct {
	can   Capabilities
	found []Gap
}

func (g *gaps) add(key, format string, args ...any) {
	g.found = append(g.found, Gap{Key: key, Reason: fmt.Sprintf(format, args...)})
}

func (g *gaps) network(key string, n Network) {
	if (n.NetworkMode == NetworkNone || n.NetworkMode == NetworkAllowlist) && !g.can.NoNetwork {
		g.add(key+".network_mode", "processes cannot be kept off the network without isolation")
	}
}

// userName matches the names that a user can have here, or its number. It is compiled on first use:
// that takes too long for the start of every process.
var userName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([a-z_][a-z0-9_-]{0,31}|[0-9]{1,9})?$`)
})

func (g *gaps) user(key, user string) {
	if g.can.FileTree && !userName().MatchString(user) {
		g.add(key+".user", "there can be no user %q", user)
	}
}

func (g *gaps) environment(e *Environment, usual string) {
	key := e.keyIn(usual)
	g.network(key, e.Network)
	if e.OS == "windows" {
		g.add(key+".os", "tasks for Windows cannot be run")
	}
	if e.GPUs > 0 && !g.can.Containers {
		g.add(key+".gpus", "GPUs cannot be given to a task")
	}
	if len(e.GPUTypes) > 0 {
		g.add(key+".gpu_types", "GPUs cannot be given to a task")
	}
	if e.TPU != nil {
		g.add(key+".tpu", "TPUs cannot be given to a task (%d chips)", e.TPU.Chips())
	}
	switch w := e.Workdir; {
	case w == "":
	case !path.IsAbs(w):
		g.add(key+".workdir", "expected an absolute path, got %q", w)
	case taken(path.Clean(w)) && (!g.can.Images || !usable(path.Clean(w))):
		g.add(key+".workdir",
			"%s has a purpose of its own and cannot be the working directory; choose another folder, such as /app",
			w)
	case !g.can.FileTree:
		g.add(key+".workdir", "%s can be the working directory only with a file tree of the task's own", w)
	}
	for i, s := range e.SetupCommands {
		key := fmt.Sprintf("%s.setup_commands[%d]", key, i)
		g.service(key+".service", s.Service)
		if s.HostLock != "" {
			g.add(key+".host_lock", "locks of the host are not taken")
		}
		if s.CaptureDir != "" || s.CaptureDirB64Env != "" || s.CaptureDirB64EnvFileVar != "" {
			g.add(key+".capture_dir", "folders are not handed to other commands in variables")
		}
	}
}

// These places are in use in every environment: logs and the verifier's home themselves, the others
// with all that is below them.
var (
	takenPlaces = []string{"/logs", "/home/verifier", "/usr", "/usr/bin", "/usr/sbin", "/usr/lib"}
	takenTrees  = []string{"/tests", "/logs/verifier", "/proc", "/dev", "/run/evalrun", "/bin", "/sbin", "/lib", "/lib64"}
)

// taken reports whether an inside path cannot be the working directory, because something else
// would be there, or be covered by it.
func taken(inside string) bool {
	return slices.Contains(takenPlaces, inside) ||
		slices.ContainsFunc(takenTrees, func(dir string) bool { return inside == dir || strings.HasPrefix(inside, dir+"/") })
}

// usable reports whether a place that is taken in a task without an image can be the working
// directory in an image.
func usable(inside string) bool {
	return !slices.ContainsFunc([]string{"/tests", "/logs", "/proc", "/dev", "/run/evalrun"},
		func(dir string) bool { return isBelow(inside, dir) })
}

func (g *gaps) verifier(key string, v *Verifier) {
	g.network(key, v.Network)
	g.user(key, v.User)
	if v.Type == VerifierLLMJudge {
		g.add(key+".type", "there is no model to judge with; only test scripts are run")
	}
	g.service(key+".service", v.Service)
	for i, c := range v.Collect {
		g.service(fmt.Sprintf("%s.collect[%d].service", key, i), c.Service)
	}
	if v.Environment != nil {
		usual := key + ".environment"
		g.environment(v.Environment, usual)
	}
}

func (g *gaps) service(key, service string) {
	if service != "" && service != mainService {
		g.add(key, "what concerns the service %q alone is not done; only %s is looked at", service, mainService)
	}
}

func (g *gaps) artifacts(key string, artifacts []Artifact) {
	for i, a := range artifacts {
		g.service(fmt.Sprintf("%s[%d].service", key, i), a.Service)
	}
}

// folders finds parts that exist under both of their names, of which only one would be used.
func (g *gaps) folders(t *Task) {
	dirs := []string{"."}
	for _, s := range t.Config.Steps {
		dirs = append(dirs, path.Join("steps", s.Name))
	}
	for _, dir := range dirs {
		for _, names := range [][2]string{{"tests", "verifier"}, {"solution", "oracle"}} {
			one, other := path.Join(dir, names[0]), path.Join(dir, names[1])
			if isFolder(filepath.Join(t.Dir, one)) && isFolder(filepath.Join(t.Dir, other)) {
				g.add(other, "%s is there as well, and they mean the same; keep one of them", one)
			}
		}
	}
}

const dockerfileKey = "environment/Dockerfile"

// images finds the images that the task names and in which it cannot be run. Without its image a
// task gets a reward of 0 that says nothing, and its files do not tell whether it needs the image.
func (g *gaps) images(t *Task) {
	if g.can.Containers && !t.HasImage() {
		g.add("environment",
			"the task names no image and has no Dockerfile, of which a container would be made; --isolation image or bwrap runs it")
	}
	if g.can.Images && t.HasImage() {
		return
	}
	var here, tests string // why images are not run, and those of the tests alone
	if g.can.NoImages != "" {
		here = " here: " + g.can.NoImages
		tests = here
	} else if g.can.Images {
		tests = " beside an agent that has none"
	}
	e := &t.Config.Environment
	for _, key := range slices.Concat(t.Config.places, e.places) {
		g.add(key, "the key is not known, and seems to name what the task is to run in; correct it or remove it")
	}
	g.image(e, e.keyIn("environment"), "the task is to run in the image %s, and images are not run"+here)
	switch info, err := os.Stat(filepath.Join(t.Dir, filepath.FromSlash(dockerfileKey))); {
	case err != nil: // there is none
	case !info.Mode().IsRegular():
		g.add(dockerfileKey, "expected a file")
	default:
		g.add(dockerfileKey, "the task is to run in the image that this makes, and images are not built%s", here)
	}
	for i, s := range t.Stages() {
		if e := s.Verifier.Environment; e != nil {
			usual := "verifier.environment"
			if s.Name != "" && t.Config.Steps[i].Verifier.Environment != nil {
				usual = fmt.Sprintf("steps[%d].%s", i, usual)
			}
			for _, key := range e.places {
				g.add(key, "the key is not known, and seems to name what the tests are to run in; correct it or remove it")
			}
			g.image(e, e.keyIn(usual), "the tests are to run in the image %s, and images are not run"+tests)
		}
		for _, dir := range s.Tests {
			if file := filepath.Join(dir, "Dockerfile"); s.Verifier.Separate() && isFile(file) {
				g.add(t.relative(file), "the tests are to run in the image that this makes, and images are not built%s", tests)
			}
		}
	}
}

// ComposeFile returns the file that names services which run beside the task; empty if it has none.
func (t *Task) ComposeFile() string {
	if file := filepath.Join(t.Dir, "environment", composeFile); isFile(file) {
		return file
	}
	return ""
}

// HasImage reports whether the task names an image that is available: one that is published, or
// that its Dockerfile makes.
func (t *Task) HasImage() bool {
	return t.Config.Environment.DockerImage != "" || isFile(filepath.Join(t.Dir, filepath.FromSlash(dockerfileKey)))
}

// Prebuilt returns the name of the image that replaces the one that a Dockerfile makes; empty if
// the Dockerfile is to be built.
func (e *Environment) Prebuilt(dockerfile bool) string {
	if e.base && dockerfile {
		return ""
	}
	return e.DockerImage
}

// image finds the images that a table names; format has a place for the name.
func (g *gaps) image(e *Environment, key, format string) {
	if e.DockerImage != "" {
		g.add(key+".docker_image", format, e.DockerImage)
	}
	if e.BugswarmImageTag != "" {
		g.add(key+".bugswarm_image_tag", "images of BugSwarm are not found by their tag; name the image with docker_image")
	}
}

func (g *gaps) files(t *Task) {
	entries, _ := os.ReadDir(filepath.Join(t.Dir, "environment")) // most tasks without files have no such folder
	image := t.HasImage()
	for _, e := range entries {
		switch {
		case e.Name() == composeFile && !g.can.Services:
			g.add("environment/"+e.Name(), "%s", or(g.can.NoServices, "compose services are not run"))
		case e.Name() == composeFile: // the code that runs them looks into it
		case isCompose(e.Name()) && !image:
			g.add("environment/"+e.Name(),
				"compose services are not run, and are read from %s alone; beside an image the file would be data", composeFile)
		}
	}
	if image {
		return // the task has the files, or they are missing
	}
	if _, err := t.Files(); err != nil {
		g.add("environment", "%v", err)
	}
}

func (t *Task) relative(file string) string {
	if rel, err := filepath.Rel(t.Dir, file); err == nil {
		return filepath.ToSlash(rel)
	}
	return file
}

// Notes returns the parts that are executed differently from what the task's author may expect, but
// do not prevent a run.
func (t *Task) Notes(can Capabilities) []Gap {
	if !can.Services {
		return nil
	}
	return []Gap{{Key: "environment/" + composeFile,
		Reason: "services start anew after a suspension, with what is in their volumes alone"}}
}

func isBelow(p, dir string) bool { return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/") }
