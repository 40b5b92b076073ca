package modelproxy

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// keyHeaders has the headers in which clients send their key: OpenAI's, Anthropic's, Gemini's,
// Azure's. Gemini also takes it as the query parameter keyQuery.
var keyHeaders = []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key", "Api-Key"}

const (
	keyQuery = "key"
	bearer   = "Bearer "
)

// authenticate finds the session whose token a request bears, or nil.
func (p *Proxy) authenticate(r *http.Request) *Session {
	for _, name := range keyHeaders {
		for _, value := range r.Header.Values(name) {
			if s := p.find(credential(name, value)); s != nil {
				return s
			}
		}
	}
	for param := range strings.SplitSeq(r.URL.RawQuery, "&") {
		if value, ok := keyParam(param); ok {
			if s := p.find(value); s != nil {
				return s
			}
		}
	}
	return nil
}

// substitute puts the provider's key in the place of the token. It removes all other values of
// these headers, and every header that repeats the token.
func (s *Session) substitute(h http.Header, rawQuery string) (newQuery string) {
	for _, name := range keyHeaders {
		bears := slices.ContainsFunc(h.Values(name), func(v string) bool { return credential(name, v) == s.token })
		h.Del(name)
		switch {
		case !bears || s.upstream.Key == "":
		case name == "Authorization":
			h.Set(name, bearer+s.upstream.Key)
		default:
			h.Set(name, s.upstream.Key)
		}
	}
	for name, values := range h {
		if slices.ContainsFunc(values, func(v string) bool { return strings.Contains(v, s.token) }) {
			delete(h, name)
		}
	}
	for name, value := range s.upstream.Headers {
		h.Set(name, value)
	}
	var params []string // the other parameters stay unchanged and in place
	for param := range strings.SplitSeq(rawQuery, "&") {
		if value, ok := keyParam(param); ok && value == s.token {
			if s.upstream.Key == "" {
				continue
			}
			param = keyQuery + "=" + url.QueryEscape(s.upstream.Key)
		}
		params = append(params, param)
	}
	return strings.Join(params, "&")
}

// credential returns the key in a header.
func credential(name, value string) string {
	if name == "Authorization" {
		if len(value) < len(bearer) || !strings.EqualFold(value[:len(bearer)], bearer) {
			return ""
		}
		value = value[len(bearer):]
	}
	return strings.TrimSpace(value)
}

// keyParam returns the value of a query parameter if it is the one for keys.
func keyParam(param string) (value string, ok bool) {
	name, escaped, _ := strings.Cut(param, "=")
	if name != keyQuery {
		return "", false
	}
	value, err := url.QueryUnescape(escaped)
	return value, err == nil
}
