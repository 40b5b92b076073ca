package tasks

import (
	"bytes"
	"regexp"
	"strings"
	"sync"
)

// lacking matches messages of package managers, downloaders and shells about a network, a package
// or a program that is missing. It is compiled on first use: that takes too long for the start of
// every process.
var lacking = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)temporary failure (in name resolution|resolving)|could not resolve( host)?|name or service not known|network is unreachable|no route to host` +
		`|failed to establish a new connection|dns error|error sending request for url|getaddrinfo (enotfound|eai_again)|failed to (fetch|download) ` +
		`|unable to locate package|has no installation candidate|no matching distribution found|no solution found when resolving|404 +not found` +
		`|(uvx?|uv|curl|wget|pip3?|pytest|apt-get|npm|npx): (command )?not found`)
})

// maxSuspicious is how much of the line is shown.
const maxSuspicious = 300

// Suspicious returns the first line printed by a test script which says that the script could not
// get something that it needs: it may have written 0 for want of its tools, whatever the agent has
// done. It is empty if there is none. The score stays the same.
func Suspicious(printed []byte) string {
	for line := range bytes.Lines(printed) {
		if lacking().Match(line) {
			text := strings.ToValidUTF8(strings.TrimSpace(string(line)), "\uFFFD")
			return text[:min(len(text), maxSuspicious)]
		}
	}
	return ""
}
