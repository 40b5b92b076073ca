package main

import (
	"regexp"
	"strings"
)

// tagged is what git describe prints where there is a tag: the last one, the commits since then, and
// the commit. Otherwise it prints the commit alone.
var tagged = regexp.MustCompile(`^v?(\d+\.\d+\.\d+)(-[0-9A-Za-z.]+?)?(?:-(\d+)-g([0-9a-f]+))?$`)

// parts are the parts of the version. dirty says that files were changed. A commit without a tag is a commit after 0.0.0.
func (r *release) parts() (number, prerelease, since, commit string, dirty bool) {
	described, dirty := strings.CutSuffix(r.version, "-dirty")
	m := tagged.FindStringSubmatch(described)
	if m == nil {
		return "0.0.0", "", "0", described, dirty
	}
	return m[1], strings.TrimPrefix(m[2], "-"), m[3], m[4], dirty
}

// semver is the version as npm and nfpm want it. What was built between two tags is older than the
// tag before it: it is tried, and not published.
func (r *release) semver() string {
	number, prerelease, since, commit, dirty := r.parts()
	var tail []string
	if prerelease != "" {
		tail = append(tail, prerelease)
	}
	if commit != "" {
		tail = append(tail, since, "g"+commit)
	}
	if dirty {
		tail = append(tail, "dirty")
	}
	if len(tail) == 0 {
		return number
	}
	return number + "-" + strings.Join(tail, ".")
}

// pep440 is the version as Python's packages have it.
func (r *release) pep440() string {
	number, prerelease, since, commit, dirty := r.parts()
	version := number + strings.NewReplacer("alpha", "a", "beta", "b", ".", "", "-", "").Replace(prerelease)
	var local []string
	if commit != "" {
		version += ".post" + since
		local = append(local, "g"+commit)
	}
	if dirty {
		local = append(local, "dirty")
	}
	if len(local) == 0 {
		return version
	}
	return version + "+" + strings.Join(local, ".")
}
