package container

import (
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// build checks that a service is built from the folder of the file, or from one in it.
func (r *composeReader) build(n *input.Node) map[string]any {
	if n.Kind == input.String {
		return map[string]any{"context": r.inside(n)}
	}
	f := r.Object(n)
	out := map[string]any{"context": r.real()}
	if c := f.Get("context"); c != nil {
		out["context"] = r.inside(c)
	}
	for _, key := range []string{"dockerfile", "args", "target"} {
		if v := f.Get(key); v != nil {
			out[key] = plain(v)
		}
	}
	if d := f.Get("dockerfile"); d != nil && (path.IsAbs(d.Text) || !filepath.IsLocal(d.Text)) {
		r.Errorf(d, "expected a path in the build context, got %q", d.Text)
	}
	r.refuseRest(f)
	return out
}

// inside returns the path of something in the folder of the file. If it is not there, or lies
// elsewhere, inside records a problem and returns the folder itself.
func (r *composeReader) inside(n *input.Node) string {
	at := n.Text
	if !filepath.IsAbs(at) {
		at = filepath.Join(r.dir, at)
	}
	real, err := filepath.EvalSymlinks(at)
	home := r.real()
	if err != nil {
		r.Errorf(n, "there is no %s beside the file", n.Text)
		return home
	}
	if real != home && !strings.HasPrefix(real, home+"/") {
		r.Errorf(n, "%s is refused: it is a file or folder of this machine outside of the task's environment", n.Text)
		return home // nothing of the other is read
	}
	return real
}

// real is the folder of the file with its links resolved.
func (r *composeReader) real() string {
	if real, err := filepath.EvalSymlinks(r.dir); err == nil {
		return real
	}
	return r.dir
}

// environment reads variables, which a file gives as a list or as an object.
func (r *composeReader) environment(n *input.Node) (out []string) {
	if n == nil {
		return nil
	}
	for _, item := range n.Items {
		name, _, set := strings.Cut(item.Text, "=")
		if value, ok := r.variable(name); !set && ok {
			out = append(out, name+"="+value)
		} else if set {
			out = append(out, item.Text)
		}
	}
	for _, m := range n.Members {
		if value, ok := r.variable(m.Key); m.Value.Kind != input.Null {
			out = append(out, m.Key+"="+m.Value.Text)
		} else if ok {
			out = append(out, m.Key+"="+value)
		}
	}
	return out
}

// networksOf returns the networks of a service, at least one.
func (r *composeReader) networksOf(n *input.Node) (names []string) {
	if n == nil || len(n.Items)+len(n.Members) == 0 {
		return []string{"default"}
	}
	for _, item := range n.Items {
		names = append(names, item.Text)
	}
	for _, m := range n.Members {
		names = append(names, m.Key)
		if m.Value.Kind != input.Null {
			r.refuseRest(r.Object(m.Value))
		}
	}
	for _, name := range names {
		if _, ok := r.out.project["networks"].(map[string]any)[name]; !ok {
			r.Errorf(n, "there is no network %q in the file", name)
		}
	}
	return names
}

// plain returns a value as encoding/json has it.
func plain(n *input.Node) (v any) {
	if err := json.Unmarshal(n.JSON(), &v); err != nil {
		return nil // not reached: a node encodes
	}
	return v
}

// healthcheck reads a service's healthcheck; nil if it has none.
func (r *composeReader) healthcheck(n *input.Node) *sandbox.Healthcheck {
	if n == nil {
		return nil
	}
	f := r.Object(n)
	test := f.Get("test")
	h := &sandbox.Healthcheck{Interval: f.Duration("interval", 30*time.Second), StartPeriod: f.Duration("start_period", 0),
		StartInterval: f.Duration("start_interval", time.Second), Retries: f.Int("retries", 3, 1, 10000)}
	h.Timeout = f.Duration("timeout", 30*time.Second)
	disabled := f.Bool("disable", false)
	r.refuseRest(f)
	switch {
	case disabled || test == nil || len(test.Items) > 0 && test.Items[0].Text == "NONE":
		return nil
	case test.Kind == input.String:
		h.Args = []string{"/bin/sh", "-c", test.Text}
	case len(test.Items) == 2 && test.Items[0].Text == "CMD-SHELL":
		h.Args = []string{"/bin/sh", "-c", test.Items[1].Text}
	case len(test.Items) > 1 && test.Items[0].Text == "CMD":
		for _, item := range test.Items[1:] {
			h.Args = append(h.Args, item.Text)
		}
	default:
		r.Errorf(test, `expected a command, or a list that begins with "CMD", "CMD-SHELL" or "NONE"`)
		return nil
	}
	return h
}

// volumesOf returns the volumes of a service: those with names, by their inside paths, and folders
// beside the file, which are mounted read-only. A volume without a name gets the name "", since
// only the container knows it.
func (r *composeReader) volumesOf(n *input.Node) (named map[string]string, own []string) {
	named = map[string]string{}
	if n == nil {
		return named, nil
	}
	for _, item := range n.Items {
		var kind, source, target string
		at := item
		if item.Kind == input.String {
			parts := strings.Split(item.Text, ":")
			if target = parts[0]; len(parts) > 1 {
				source, target = parts[0], parts[1]
			}
		} else {
			f := r.Object(item)
			kind, source, target = f.Enum("type", "volume", "volume", "bind", "tmpfs"),
				f.String("source", ""), f.RequiredString("target")
			if s := f.Get("source"); s != nil {
				at = s
			}
			f.Ignore("read_only")
			r.refuseRest(f)
		}
		_, declared := r.out.project["volumes"].(map[string]any)[source]
		switch {
		case kind == "tmpfs": // a folder of the container
		case source == "":
			named[path.Clean(target)] = ""
		case declared && kind != "bind":
			named[path.Clean(target)] = source
		case strings.HasPrefix(source, "/logs/"): // Harbor has the logs there, which are mounted anyway
		case kind == "volume" && !strings.ContainsAny(source, "./~"):
			r.Errorf(at, "there is no volume %q in the file", source)
		default:
			before := len(r.Problems)
			if real := r.inside(&input.Node{Kind: input.String, File: at.File, Line: at.Line,
				Column: at.Column, Path: at.Path, Text: source}); len(r.Problems) == before {
				own = append(own, fmt.Sprintf("%s:%s:ro", real, target))
			}
		}
	}
	return named, own
}
