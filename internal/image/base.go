package image

import (
	"bufio"
	"os"
	"regexp"
	"strings"
)

// base is an image on which another was built.
type base struct {
	Name string `json:"name"`
	ID   string `json:"id"`
}

var (
	fromLine = regexp.MustCompile(`(?i)^\s*FROM((?:\s+--\S+)*)\s+(\S+)(?:\s+AS\s+(\S+))?\s*$`)
	argLine  = regexp.MustCompile(`(?i)^\s*ARG\s+([A-Za-z_][A-Za-z0-9_]*)=["']?([^"'\s]*)["']?\s*$`)
	copyFrom = regexp.MustCompile(`(?i)^\s*COPY\s(?:.*\s)?--from=(\S+)`)
	argUse   = regexp.MustCompile(`\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})`)
	stageNo  = regexp.MustCompile(`^\d+$`)
)

// baseNames are the names of the images on which a Dockerfile builds. It leaves out names that
// cannot be known; then nothing notices that such an image has changed.
func baseNames(dockerfile string) (names []string, err error) {
	f, err := os.Open(dockerfile)
	if err != nil {
		return nil, err
	}
	defer f.Close() // it was only read
	args, stages := map[string]string{}, map[string]bool{"scratch": true}
	add := func(name string) {
		name = argUse.ReplaceAllStringFunc(name, func(use string) string { return args[strings.Trim(use, "${}")] })
		if !stages[strings.ToLower(name)] && !stageNo.MatchString(name) {
			names = append(names, name)
		}
	}
	lines := bufio.NewScanner(f)
	for begun := false; lines.Scan(); {
		line := lines.Text()
		if m := fromLine.FindStringSubmatch(line); m != nil {
			begun = true
			add(m[2])
			stages[strings.ToLower(m[3])] = true
		} else if m := argLine.FindStringSubmatch(line); m != nil && !begun {
			args[m[1]] = m[2]
		} else if m := copyFrom.FindStringSubmatch(line); m != nil {
			add(m[1])
		}
	}
	return names, lines.Err()
}

// bases are the images, with their ids, on which a Dockerfile has just been built.
func (s storage) bases(dockerfile string) ([]base, error) {
	names, err := baseNames(dockerfile)
	if err != nil {
		return nil, err
	}
	var all []base
	for _, name := range names {
		id, err := s.find(name)
		if err != nil {
			return nil, err
		}
		if id != "" {
			all = append(all, base{name, id})
		}
	}
	return all, nil
}

// changed reports whether one of the names belongs to another image by now. An image that is not
// there any more has not changed.
func (s storage) changed(bases []base) bool {
	for _, b := range bases {
		if id, err := s.find(b.Name); err == nil && id != "" && id != b.ID {
			return true
		}
	}
	return false
}
