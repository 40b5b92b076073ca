package tasks

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// Dockerfile is what evalrun can do of a Dockerfile without building an image: the files that it
// copies, the working directory and the variables.
type Dockerfile struct {
	// Image is the base image, which is not used: the system of this machine takes its place.
	Image   string
	Workdir string
	Env     []KeyValue
	Copies  []CopyInstruction
	// Unsupported are the instructions that would have to be executed, with their lines.
	Unsupported []string

	// vars are the values of ENV and ARG; env says which of them ENV has set.
	vars map[string]string
	env  map[string]bool
	dirs map[string]bool
}

// CopyInstruction is a COPY or ADD of files of the build context.
type CopyInstruction struct {
	Line int
	// Sources are relative to the folder of the Dockerfile and may be globs.
	Sources []string
	// Destination is absolute. If Folder is set it is a folder, and a file gets its own name in it.
	Destination string
	Folder      bool
}

// ReadDockerfile reads a Dockerfile. What it cannot do is no error, but noted in Unsupported.
func ReadDockerfile(file string) (Dockerfile, error) {
	data, err := readFile(file)
	if err != nil {
		return Dockerfile{}, fmt.Errorf("%s: cannot be read: %s", file, reason(err))
	}
	d := parseDockerfile(string(data))
	if len(d.Copies) > 0 && isFile(filepath.Join(filepath.Dir(file), ".dockerignore")) {
		d.Unsupported = append(d.Unsupported, ".dockerignore: it is not read, so more would be copied than it allows")
	}
	return d, nil
}

var (
	heredoc      = regexp.MustCompile(`<<-?["']?([A-Za-z_][A-Za-z0-9_]*)["']?`)
	dockerEscape = regexp.MustCompile(`(?i)^#\s*escape\s*=\s*[^\\\s]`)
	dockerVar    = regexp.MustCompile(`\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})`)
	rootUser     = regexp.MustCompile(`^(root|0)(:(root|0))?$`)
	noEntrypoint = regexp.MustCompile(`^\[\s*("")?\s*\]$`)
	archive      = regexp.MustCompile(`(?i)\.(tar|tar\.\w+|tgz|tbz2?|txz)$`)
)

func parseDockerfile(text string) Dockerfile {
	// The PATH of this machine takes the place of the image's, as its programs do.
	d := Dockerfile{vars: map[string]string{"PATH": os.Getenv("PATH")}, env: map[string]bool{"PATH": true}, dirs: map[string]bool{"/": true}}
	lines := strings.Split(strings.TrimPrefix(text, "\ufeff"), "\n")
	if dockerEscape.MatchString(lines[0]) {
		d.unsupported(1, "the directive escape")
	}
	stages := 0
	for i := 0; i < len(lines); i++ {
		first := i + 1
		logical := ""
		// A line goes on after a backslash; comments and empty lines in between do not end it.
		for ; i < len(lines); i++ {
			line := strings.TrimSpace(lines[i])
			if strings.HasPrefix(line, "#") || line == "" && logical != "" {
				continue
			}
			rest, more := strings.CutSuffix(line, `\`)
			logical += rest
			if !more {
				break
			}
			logical += " "
		}
		name, args, _ := strings.Cut(strings.TrimSpace(strings.ReplaceAll(logical, "\t", " ")), " ")
		if name == "" {
			continue
		}
		name, args = strings.ToUpper(name), strings.TrimSpace(args)
		if m := heredoc.FindStringSubmatch(args); m != nil && (name == "RUN" || name == "COPY" || name == "ADD") {
			d.unsupported(first, name+" with a here-document")
			for i++; i < len(lines) && strings.TrimLeft(strings.TrimRight(lines[i], "\r"), "\t") != m[1]; i++ {
				continue
			}
			continue
		}
		switch name {
		case "FROM":
			if stages++; stages == 2 {
				d.unsupported(first, "a second FROM: builds of several stages")
			}
			d.from(first, args)
		case "COPY", "ADD":
			d.copyFiles(first, name, args)
		case "WORKDIR":
			if dir, ok := d.expand(first, name, args); ok {
				d.workdir(dir)
			}
		case "ENV":
			d.setEnv(first, args)
		case "ARG":
			d.arg(first, args)
		case "LABEL", "MAINTAINER", "EXPOSE", "STOPSIGNAL":
			// They say something of the image and change nothing in it.
		case "SHELL":
			// It changes how RUN is run, which is not done anyway.
		case "CMD", "HEALTHCHECK":
			// Harbor runs every task's container with a command of its own, so CMD is never run,
			// and it checks its health as task.toml says.
		default:
			if name == "USER" && rootUser.MatchString(args) || name == "ENTRYPOINT" && noEntrypoint.MatchString(args) {
				continue // as it is without them
			}
			d.unsupported(first, name+" "+args)
		}
	}
	return d
}

func (d *Dockerfile) unsupported(line int, what string) {
	what = strings.Join(strings.Fields(what), " ")
	if runes := []rune(what); len(runes) > 150 {
		what = string(runes[:150]) + "…"
	}
	d.Unsupported = append(d.Unsupported, fmt.Sprintf("line %d: %s", line, what))
}

func (d *Dockerfile) from(line int, args string) {
	words := strings.Fields(args)
	for len(words) > 0 && strings.HasPrefix(words[0], "--") { // --platform
		words = words[1:]
	}
	if len(words) == 0 {
		d.unsupported(line, "FROM without an image")
		return
	}
	d.Image = dockerVar.ReplaceAllStringFunc(words[0], func(ref string) string { return d.vars[strings.Trim(ref, "${}")] })
}

// expand puts in the variables that ENV and ARG have set. Others would come from the base image,
// which is not there.
func (d *Dockerfile) expand(line int, name, s string) (string, bool) {
	known := true
	out := dockerVar.ReplaceAllStringFunc(s, func(ref string) string {
		v, ok := d.vars[strings.Trim(ref, "${}")]
		known = known && ok
		return v
	})
	if !known || strings.ContainsAny(dockerVar.ReplaceAllString(s, ""), `$\`) {
		d.unsupported(line, fmt.Sprintf("%s %s: only variables that ENV or ARG sets above can be used, without escapes", name, s))
		return "", false
	}
	return out, true
}

func (d *Dockerfile) workdir(dir string) {
	d.Workdir = path.Join("/", or(d.Workdir, "/"), dir)
	if path.IsAbs(dir) {
		d.Workdir = path.Clean(dir)
	}
	d.dirs[d.Workdir] = true
}

func (d *Dockerfile) copyFiles(line int, name, args string) {
	whole := name + " " + args
	for strings.HasPrefix(args, "--") {
		flag, rest, _ := strings.Cut(args, " ")
		args = strings.TrimSpace(rest)
		// All files belong to the user that evalrun runs as, and links or layers are the builder's
		// matter.
		if !strings.HasPrefix(flag, "--chown=") && flag != "--link" && flag != "--link=true" && flag != "--link=false" {
			d.unsupported(line, fmt.Sprintf("%s: the flag %s", whole, flag))
			return
		}
	}
	words := strings.Fields(args)
	if strings.HasPrefix(args, "[") {
		words = nil
		if json.Unmarshal([]byte(args), &words) != nil {
			d.unsupported(line, whole)
			return
		}
	}
	if len(words) < 2 {
		d.unsupported(line, whole+": expected a source and a destination")
		return
	}
	for i := range words {
		var ok bool
		if words[i], ok = d.expand(line, name, words[i]); !ok {
			return
		}
	}
	sources, destination := words[:len(words)-1], words[len(words)-1]
	for _, s := range sources {
		if name == "ADD" && (strings.Contains(s, "://") || strings.HasPrefix(s, "git@") || archive.MatchString(s)) {
			d.unsupported(line, whole+": downloads and archives")
			return
		}
	}
	if !path.IsAbs(destination) && d.Workdir == "" {
		d.unsupported(line, whole+": the destination is relative to the base image's working directory, which is not known")
		return
	}
	folder := len(sources) > 1 || strings.HasSuffix(destination, "/") || path.Base(destination) == "." || path.Base(destination) == ".."
	if !path.IsAbs(destination) {
		destination = path.Join(d.Workdir, destination)
	}
	destination = path.Clean(destination)
	folder = folder || d.dirs[destination]
	if folder {
		d.dirs[destination] = true
	}
	d.Copies = append(d.Copies, CopyInstruction{Line: line, Sources: sources, Destination: destination, Folder: folder})
}

// arg reads ARG name[=value] …. One without a value that was not set before is empty, as no build
// passes one.
func (d *Dockerfile) arg(line int, args string) {
	pairs, ok := quotedWords(args)
	if !ok || len(pairs) == 0 {
		d.unsupported(line, "ARG "+args)
		return
	}
	for _, pair := range pairs {
		name, value, given := strings.Cut(pair, "=")
		if value, ok = d.expand(line, "ARG", value); !ok {
			return
		}
		if _, there := d.vars[name]; !d.env[name] && (given || !there) {
			d.vars[name] = value
		}
	}
}

// setEnv reads ENV name=value …, with quotes, and the older ENV name value.
func (d *Dockerfile) setEnv(line int, args string) {
	name, value, _ := strings.Cut(args, " ")
	pairs := []string{name + "=" + strings.TrimSpace(value)}
	if strings.Contains(name, "=") {
		var ok bool
		if pairs, ok = quotedWords(args); !ok {
			d.unsupported(line, "ENV "+args+": a quote is not closed")
			return
		}
	}
	var added []KeyValue
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if ok && name != "" {
			value, ok = d.expand(line, "ENV", value)
		}
		if !ok || name == "" {
			if name == "" || !strings.Contains(pair, "=") {
				d.unsupported(line, "ENV "+args)
			}
			return
		}
		added = append(added, KeyValue{Name: name, Value: value})
	}
	// All of one instruction see the variables as they were before it.
	for _, kv := range added {
		d.vars[kv.Name], d.env[kv.Name] = kv.Value, true
		d.Env = set(d.Env, kv)
	}
}

// quotedWords splits at spaces outside of quotes, and takes the quotes away.
func quotedWords(s string) (words []string, ok bool) {
	var word strings.Builder
	var quote rune
	started := false
	for _, c := range s {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '"' || c == '\'':
			quote, started = c, true
		case c == ' ':
			if started {
				words = append(words, word.String())
				word.Reset()
				started = false
			}
		default:
			word.WriteRune(c)
			started = true
		}
	}
	if started {
		words = append(words, word.String())
	}
	return words, quote == 0
}
