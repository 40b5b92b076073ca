package serve

import (
	"cmp"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/web"
)

// cookieName begins the name of the cookie that opens the pages. It holds a token of the store, so
// that it is valid after a restart too, and no longer than the token.
const cookieName = "evalrun"

// linkLife is how long the pages stay open after a one-time link.
const linkLife = 12 * time.Hour

// linkScopes are the scopes of a one-time link: to look, and to answer what rollouts wait for.
var linkScopes = []access.Scope{access.Read, access.Deliver}

// cookieOf is the name of this server's cookie. It contains the port, because cookies do not know
// ports: that keeps two servers of one machine apart.
func cookieOf(r *http.Request) string {
	if _, port, ok := strings.Cut(r.Host, ":"); ok && !strings.ContainsAny(port, ":]") {
		return cookieName + "_" + port
	}
	return cookieName
}

// sessions admit browsers: by a link that works once, or by a token that a person types.
type sessions struct {
	o     *Options
	rates *rates

	mu sync.Mutex
	// keys are the keys of unused links.
	keys []string
}

// link makes the path of a link that opens a page, once.
func (s *sessions) link(page string) string {
	key := strings.ToLower(rand.Text())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = append(s.keys, key)
	return "/open?" + url.Values{"key": {key}, "to": {page}}.Encode()
}

// take reports whether a key belongs to a link, which does not work any more from then on.
func (s *sessions) take(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, one := range s.keys {
		if subtle.ConstantTimeCompare([]byte(one), []byte(key)) == 1 {
			s.keys = append(s.keys[:i], s.keys[i+1:]...)
			return true
		}
	}
	return false
}

// open answers a one-time link with a cookie. The page leads on by itself: a browser would not send
// the cookie with a redirect of a link from another site.
func (s *sessions) open(w http.ResponseWriter, r *http.Request) error {
	if !s.take(r.URL.Query().Get("key")) {
		if s.signedIn(r) {
			s.lead(w, r)
			return nil
		}
		if !s.rates.guess(r) {
			web.Refuse(w, http.StatusTooManyRequests, tooManyFailures)
			return nil
		}
		web.Refuse(w, http.StatusUnauthorized,
			"This link was used before, or is of another start of the server: a link works once. Ask for a new one, or give a token.")
		return nil
	}
	now := s.o.Now()
	token, _, err := access.New(r.Context(), s.o.Service.Tokens(), cmp.Or(s.o.Person, "a browser, opened by a link"),
		linkScopes, now.Add(linkLife))
	if err != nil {
		return err
	}
	s.enter(w, r, token, now.Add(linkLife))
	return nil
}

// login answers the form for a token with a cookie.
func (s *sessions) login(w http.ResponseWriter, r *http.Request) error {
	token := strings.TrimSpace(r.PostFormValue("token"))
	identity, err := access.Check(r.Context(), s.o.Service.Tokens(), token, s.o.Now())
	switch {
	case errors.Is(err, access.ErrInvalid):
		if !s.rates.guess(r) {
			web.Refuse(w, http.StatusTooManyRequests, tooManyFailures)
			return nil
		}
		web.Refuse(w, http.StatusUnauthorized, "This token is not valid: it was revoked or has expired, or it never was one.")
		return nil
	case err != nil:
		return err
	case !identity.May(access.Read):
		web.Refuse(w, http.StatusUnauthorized, "This token lacks the scope read.")
		return nil
	}
	s.enter(w, r, token, time.Time{})
	return nil
}

// logout removes the cookie. The token stays valid.
func (s *sessions) logout(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w,
		&http.Cookie{Name: cookieOf(r), Path: "/", MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	web.Refuse(w, http.StatusUnauthorized, "You have left.")
}

func (s *sessions) enter(w http.ResponseWriter, r *http.Request, token string, until time.Time) {
	http.SetCookie(w, &http.Cookie{Name: cookieOf(r), Value: token, Path: "/", Expires: until, HttpOnly: true,
		SameSite: http.SameSiteStrictMode, Secure: s.isSecure(r)})
	s.lead(w, r)
}

// signedIn reports whether the browser may already see the pages.
func (s *sessions) signedIn(r *http.Request) bool {
	token, ok := cookieToken(r)
	if !ok {
		return false
	}
	identity, err := access.Check(r.Context(), s.o.Service.Tokens(), token, s.o.Now())
	return err == nil && identity.May(access.Read)
}

// lead sends the browser on to the page that its link names.
func (s *sessions) lead(w http.ResponseWriter, r *http.Request) {
	to := r.URL.Query().Get("to")
	// Only pages of this server are allowed.
	if !strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") || strings.ContainsAny(to, "\\;") {
		to = "/"
	}
	w.Header().Set("Refresh", "0; url="+to)
	web.Opened(w, to)
}

// isSecure reports whether the browser reaches the server over TLS.
func (s *sessions) isSecure(r *http.Request) bool {
	return r.TLS != nil || s.o.PublicURL != nil && s.o.PublicURL.Scheme == "https"
}

// cookieToken returns the token in the cookie of a page's request.
func cookieToken(r *http.Request) (string, bool) {
	c, err := r.Cookie(cookieOf(r))
	if err != nil {
		return "", false
	}
	return c.Value, c.Value != ""
}
