package redact

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// FromEnviron returns the variables of an environment that are secrets, by name: those that were
// passed on, and those whose name looks like a secret. An absolute path to something that exists is
// no secret.
func FromEnviron(environ, passed []string) map[string]string {
	out := map[string]string{}
	for _, entry := range environ {
		name, value, ok := strings.Cut(entry, "=")
		if !ok || name == "" {
			continue
		}
		delete(out, name) // the last value of a name counts
		if (slices.Contains(passed, name) || looksSecret(name)) && !isPath(value) {
			out[name] = value
		}
	}
	return out
}

// looksSecret judges a variable by its name. It searches AUTH and KEY only at the ends of words,
// because of GIT_AUTHOR_NAME and KEYBOARD.
func looksSecret(name string) bool {
	name = strings.ToUpper(name)
	if strings.Contains(name, "PUBLIC_KEY") {
		return false
	}
	for _, part := range []string{"TOKEN", "SECRET", "PASSW", "CREDENTIAL"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	words := strings.FieldsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	return slices.ContainsFunc(words, func(w string) bool {
		return strings.HasSuffix(w, "KEY") || strings.HasSuffix(w, "KEYS") || strings.HasSuffix(w, "AUTH")
	})
}

func isPath(value string) bool {
	if !filepath.IsAbs(value) {
		return false
	}
	_, err := os.Lstat(value)
	return err == nil
}
