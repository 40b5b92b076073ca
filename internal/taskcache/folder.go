package taskcache

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
	"unicode"
)

// Folder names a folder of a git repository.
type Folder struct {
	// URL is the repository as git takes it: https://, http://, ssh://, git://, file:// or
	// user@host:path.
	URL string
	// Commit is a commit's full id. Before [Cache.Get] it may be a branch or a tag, or empty for
	// the commit that the repository has checked out.
	Commit string
	// Path is slash-separated and relative to the top of the repository, "." for all of it.
	Path string
}

// prefix distinguishes the address of a folder from a path of this machine, as in pip and npm.
const prefix = "git+"

// IsURL reports whether text is the address of a folder in a git repository.
func IsURL(text string) bool { return strings.HasPrefix(text, prefix) }

// Parse reads git+URL#COMMIT:PATH. The fragment is that of Docker's build contexts: both parts may
// be left out.
func Parse(text string) (Folder, error) {
	address, fragment, _ := strings.Cut(strings.TrimPrefix(text, prefix), "#")
	commit, sub, _ := strings.Cut(fragment, ":")
	f, err := New(address, commit, sub)
	if err != nil {
		return f, fmt.Errorf("%.200q: %w; expected git+https://HOST/REPOSITORY#COMMIT:FOLDER", text, err)
	}
	return f, nil
}

// New checks a folder. It refuses values that git or a shell of the other side would take for an
// option or a command, and a path that leads out of the repository.
func New(address, commit, folder string) (Folder, error) {
	f := Folder{URL: address, Commit: commit, Path: folder}
	if err := checkURL(address); err != nil {
		return f, err
	}
	if commit != "" && (!isRef(commit) || strings.Contains(commit, "..")) {
		return f, fmt.Errorf("%.100q can be no commit, branch or tag", commit)
	}
	if f.Path == "" {
		f.Path = "."
	}
	for part := range strings.SplitSeq(f.Path, "/") {
		if part == ".." || strings.EqualFold(part, ".git") {
			return f, fmt.Errorf("the folder %.200q is not within the repository", folder)
		}
	}
	if path.IsAbs(f.Path) || strings.ContainsFunc(f.Path, unicode.IsControl) || strings.Contains(f.Path, `\`) {
		return f, fmt.Errorf("the folder %.200q is not within the repository", folder)
	}
	f.Path = path.Clean(f.Path)
	return f, nil
}

// String returns the address that Parse reads.
func (f Folder) String() string {
	out := prefix + f.URL
	if f.Commit != "" || f.Path != "." {
		out += "#" + f.Commit
	}
	if f.Path != "." {
		out += ":" + f.Path
	}
	return out
}

// Fixed reports whether the commit is named by its full id, so that the folder never changes.
func (f Folder) Fixed() bool { return isID(f.Commit) }

// name returns the name of the folder. A task without a name of its own gets this one.
func (f Folder) name() string {
	if f.Path != "." {
		return path.Base(f.Path)
	}
	_, after, _ := strings.Cut(f.URL, ":")
	if name := strings.TrimSuffix(path.Base(strings.TrimRight(after, "/")), ".git"); name != "" &&
		name[0] != '.' && name != "/" {
		return name
	}
	return "repository"
}

func isID(commit string) bool { return matches(`^[0-9a-f]{40}([0-9a-f]{24})?$`, commit) }

func isRef(name string) bool { return matches(`^[A-Za-z0-9][A-Za-z0-9._/+-]{0,199}$`, name) }

func matches(pattern, text string) bool { return regexp.MustCompile(pattern).MatchString(text) }

// checkURL accepts the transports of git that only read a repository. Others run programs: ext::
// and fd:: by their nature, and names that begin with a hyphen as options.
func checkURL(address string) error {
	switch {
	case address == "":
		return fmt.Errorf("there is no address of a repository")
	case len(address) > 2000 || strings.ContainsFunc(address, func(r rune) bool {
		return unicode.IsControl(r) || unicode.IsSpace(r)
	}):
		return fmt.Errorf("an address has no blanks and control characters, and at most 2000 characters")
	case strings.HasPrefix(address, "-"):
		return fmt.Errorf("%.200q looks like an option of git and not like an address", address)
	case !strings.Contains(address, "://") && matches(`^[A-Za-z0-9._]+@[A-Za-z0-9][A-Za-z0-9.-]*:[^:-]`, address):
		return nil
	}
	u, err := url.Parse(address)
	if err != nil {
		return fmt.Errorf("not an address of a repository")
	}
	switch u.Scheme {
	case "https", "http", "git":
		if u.User != nil {
			return fmt.Errorf("an address with a name or a password in it would be written into results; use a credential helper of git")
		}
	case "ssh":
		if _, ok := u.User.Password(); ok {
			return fmt.Errorf("an address with a password in it would be written into results; use a key")
		}
		if strings.HasPrefix(u.User.Username(), "-") {
			return fmt.Errorf("%.200q looks like an option of ssh", u.User.Username())
		}
	case "file":
		if u.Host != "" || !path.IsAbs(u.Path) {
			return fmt.Errorf("expected file:///FOLDER")
		}
		return nil
	default:
		return fmt.Errorf("git is asked over https, http, ssh, git and file only, not over %.20q", u.Scheme)
	}
	if u.Hostname() == "" || strings.HasPrefix(u.Hostname(), "-") {
		return fmt.Errorf("%.200q can be no host", u.Hostname())
	}
	return nil
}
