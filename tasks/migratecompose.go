package tasks

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
)

// composed holds a compose file's settings of the one container of a Terminal-Bench 1 task.
type composed struct {
	// context is the folder that is built, relative to the task.
	context string
	image   string
	// lines are added to the Dockerfile.
	lines    []string
	cpus     string
	memoryMB string
	platform string
}

// readCompose reads docker-compose.yaml. A setting that has no place in a Dockerfile or in
// task.toml is a problem with its key.
func (m *migration) readCompose() composed {
	c := composed{context: "."}
	name := "docker-compose.yaml"
	if !isFile(m.file(name)) && isFile(m.file("docker-compose.yml")) {
		name = "docker-compose.yml"
	}
	root := m.parse(name)
	if root == nil {
		return c
	}
	f := m.r.Object(root)
	f.Ignore("version", "name")
	services := f.Required("services", input.Object)
	for _, unknown := range f.Unknown() {
		m.r.Errorf(unknown.Value, "cannot be migrated: a task of evalrun is one container")
	}
	if services == nil {
		return c
	}
	var main *input.Node
	for i, s := range services.Members {
		if s.Key == "client" || i == 0 && services.Member("client") == nil {
			main = s.Value
			continue
		}
		m.r.Errorf(s.Value, "cannot be migrated: a task of evalrun is one container, and services beside it are not run")
	}
	if main == nil {
		m.r.Errorf(services, "expected a service, got none")
		return c
	}
	m.readService(&c, main)
	if len(m.r.Problems.Warnings()) == len(m.r.Problems) &&
		!isFile(filepath.Join(m.file(c.context), "Dockerfile")) && c.image == "" {
		m.problem(filepath.ToSlash(filepath.Join(c.context, "Dockerfile")), "missing, and %s names no image", name)
	}
	return c
}

func (m *migration) readService(c *composed, n *input.Node) {
	f := m.r.Object(n)
	f.Ignore("container_name", "command", "stdin_open", "tty", "restart", "init", "hostname")
	c.image = f.String("image", "")
	if strings.Contains(c.image, "${") {
		c.image = "" // the harness's own name for the image that it builds
	}
	if build := f.Get("build"); build != nil {
		m.readBuild(c, build)
		c.image = ""
	}
	m.readServiceEnv(c, f.Get("environment"))
	if dir := f.String("working_dir", ""); dir != "" {
		if strings.Contains(dir, "${") {
			m.r.Errorf(f.Get("working_dir"), "cannot be migrated: the variable has no value here")
		}
		c.lines = append(c.lines, "WORKDIR "+dir)
	}
	if entry := f.Get("entrypoint"); entry != nil {
		if entry.Kind == input.String {
			c.lines = append(c.lines, "ENTRYPOINT "+entry.Text)
		} else {
			c.lines = append(c.lines, "ENTRYPOINT "+string(entry.JSON()))
		}
	}
	if user := f.String("user", ""); user != "" {
		c.lines = append(c.lines, "USER "+user)
	}
	for _, port := range nodes(f.Get("expose")) {
		c.lines = append(c.lines, "EXPOSE "+port.Text)
	}
	c.platform = f.String("platform", "")
	for _, volume := range nodes(f.Get("volumes")) {
		if !strings.HasPrefix(volume.Text, "${T_BENCH_TASK_") { // the harness's own logs
			m.r.Errorf(volume,
				"cannot be migrated: folders of this machine are not put into a task; copy what it needs in its Dockerfile")
		}
	}
	m.readResources(c, f)
	for _, unknown := range f.Unknown() {
		m.r.Errorf(unknown.Value, "cannot be migrated: there is nothing for it in a Dockerfile or in task.toml")
	}
}

func nodes(n *input.Node) []*input.Node {
	if n == nil || n.Kind == input.Null {
		return nil
	}
	if n.Kind == input.Array {
		return n.Items
	}
	return []*input.Node{n}
}

func (m *migration) readBuild(c *composed, n *input.Node) {
	at := n
	if n.Kind == input.String {
		c.context = n.Text
	} else {
		f := m.r.Object(n)
		c.context = f.String("context", ".")
		if name := f.String("dockerfile", "Dockerfile"); strings.TrimPrefix(name, "./") != "Dockerfile" {
			m.r.Errorf(f.Get("dockerfile"), "cannot be migrated: the file must be called Dockerfile")
		}
		for _, unknown := range f.Unknown() {
			m.r.Errorf(unknown.Value, "cannot be migrated: only the folder that is built is")
		}
		if f.Has("context") {
			at = f.Get("context")
		}
	}
	c.context = filepath.ToSlash(filepath.Clean(filepath.FromSlash(c.context)))
	if !filepath.IsLocal(filepath.FromSlash(c.context)) || !isFolder(m.file(c.context)) {
		m.r.Errorf(at, "cannot be migrated: expected a folder of the task, got %q", c.context)
		c.context = "."
	}
}

func (m *migration) readServiceEnv(c *composed, n *input.Node) {
	c.lines = append(c.lines, "ENV TEST_DIR=/tests")
	add := func(at *input.Node, name, value string) {
		switch {
		case name == "TEST_DIR":
		case strings.Contains(value, "${"):
			m.r.Errorf(at,
				"cannot be migrated: the value of the variable is not known; name it in [environment.env] of task.toml")
		default:
			c.lines = append(c.lines, "ENV "+name+"="+quoted(strings.ReplaceAll(value, "$", `\$`)))
		}
	}
	switch {
	case n == nil:
	case n.Kind == input.Object:
		for _, e := range n.Members {
			add(e.Value, e.Key, e.Value.Text)
		}
	default:
		for _, item := range nodes(n) {
			name, value, ok := strings.Cut(item.Text, "=")
			if !ok {
				m.r.Errorf(item, "cannot be migrated: the variable is this machine's; name it in [environment.env] of task.toml")
				continue
			}
			add(item, name, value)
		}
	}
}

// readResources reads limits in both spellings of compose files.
func (m *migration) readResources(c *composed, f *input.Fields) {
	cpus, memory := f.Get("cpus"), f.Get("mem_limit")
	if deploy := f.Get("deploy"); deploy != nil {
		d := m.r.Object(deploy)
		if resources := d.Optional("resources", input.Object); resources != nil {
			r := m.r.Object(resources)
			if limits := r.Optional("limits", input.Object); limits != nil {
				l := m.r.Object(limits)
				if n := l.Get("cpus"); n != nil {
					cpus = n
				}
				if n := l.Get("memory"); n != nil {
					memory = n
				}
				for _, unknown := range l.Unknown() {
					m.r.Errorf(unknown.Value, "cannot be migrated: only cpus and memory are")
				}
			}
			r.Ignore("reservations")
			for _, unknown := range r.Unknown() {
				m.r.Errorf(unknown.Value, "cannot be migrated: only limits are")
			}
		}
		for _, unknown := range d.Unknown() {
			m.r.Errorf(unknown.Value, "cannot be migrated: only resources are")
		}
	}
	if cpus != nil && !strings.Contains(cpus.Text, "${") {
		whole, fraction, _ := strings.Cut(cpus.Text, ".")
		if strings.Trim(fraction, "0") != "" || !allDigits(whole) || whole == "0" {
			m.r.Errorf(cpus, "cannot be migrated: task.toml has whole CPUs only, got %s", cpus.Text)
		}
		c.cpus = whole
	}
	if memory != nil && !strings.Contains(memory.Text, "${") {
		mb, ok := megabytes(memory.Text)
		if !ok {
			m.r.Errorf(memory, "cannot be migrated: expected a size such as 2g or 512m, got %s", memory.Text)
		}
		c.memoryMB = mb
	}
}

func allDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == "" && len(text) < 7
}

// megabytes reads a size of Docker's, of whole megabytes.
func megabytes(text string) (string, bool) {
	lower := strings.TrimSuffix(strings.ToLower(strings.TrimSpace(text)), "b")
	if digits, ok := strings.CutSuffix(lower, "g"); ok && allDigits(digits) {
		var n int
		_, err := fmt.Sscan(digits, &n)
		return fmt.Sprint(n * 1024), err == nil
	}
	digits, ok := strings.CutSuffix(lower, "m")
	return digits, ok && allDigits(digits)
}

// environment writes [environment].
func (c *composed) environment(out *strings.Builder) {
	if c.cpus == "" && c.memoryMB == "" {
		return
	}
	fmt.Fprintf(out, "\n[environment]\n")
	if c.cpus != "" {
		fmt.Fprintf(out, "cpus = %s\n", c.cpus)
	}
	if c.memoryMB != "" {
		fmt.Fprintf(out, "memory_mb = %s\n", c.memoryMB)
	}
}

// dockerfile adds the settings of the compose file to a Dockerfile.
func (c *composed) dockerfile(text string) string {
	if text == "" {
		text = "FROM " + c.image + "\n"
	}
	if c.platform != "" {
		var out strings.Builder
		for line := range strings.Lines(text) {
			fields := strings.Fields(line)
			if len(fields) > 1 && strings.EqualFold(fields[0], "FROM") && !strings.HasPrefix(fields[1], "--platform") {
				line = "FROM --platform=" + c.platform + " " + strings.Join(fields[1:], " ") + "\n"
			}
			out.WriteString(line)
		}
		text = out.String()
	}
	return strings.TrimRight(text, "\n") + "\n\n# From docker-compose.yaml.\n" + strings.Join(c.lines, "\n") + "\n"
}
