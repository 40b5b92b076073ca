package serve

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"
)

// tokenPath begins the paths that contain a token; the rest is the requested path. Clients of MCP
// Mesh know nothing but the URL of their registry.
const tokenPath = "/jobs/t/"

// withoutToken removes the token from the path of a request, before anything else sees the request.
// The token is empty if the path has none.
func withoutToken(r *http.Request) (_ *http.Request, token string) {
	rest, ok := strings.CutPrefix(r.URL.Path, tokenPath)
	if !ok {
		return r, ""
	}
	token, rest, _ = strings.Cut(rest, "/")
	if token == "" {
		return r, ""
	}
	clone := r.Clone(r.Context())
	_, raw, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), tokenPath), "/")
	clone.URL = &url.URL{Path: "/" + rest, RawPath: "/" + raw, RawQuery: r.URL.RawQuery}
	clone.RequestURI = clone.URL.RequestURI()
	return clone, token
}

// tokenOf returns the token that a request has for a route, and whether it has one. inPath is the
// token of its path.
func tokenOf(r *http.Request, route Route, inPath string) (string, bool) {
	if token, ok := bearer(r); ok {
		return token, true
	}
	if name, password, ok := r.BasicAuth(); ok && route.Mesh {
		inPath = cmp.Or(password, name, inPath)
	}
	return inPath, inPath != ""
}

// bearer returns the token of a request's header.
func bearer(r *http.Request) (string, bool) {
	kind, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	return token, ok && strings.EqualFold(kind, "Bearer") && token != ""
}
