package markup

import (
	"fmt"
	"reflect"
	"strings"
	"text/template/parse"
)

// URL is an address that the program itself has made, of whatever scheme.
type URL string

// place is where a template inserts something.
type place int

const (
	inText   place = iota // between tags, or in an attribute that is no URL
	atURL                 // at the beginning of the URL of an attribute
	inPath                // in such a URL
	inParams              // in such a URL, after "?" or "#"
	nowhere               // in a tag, a script or a style, where no text is safe
)

// escape returns a value as text for a place. It can neither end the attribute or the element in
// which it stands, nor choose the scheme of a URL other than http, https and mailto.
func (p place) escape(v reflect.Value) string {
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if !v.IsValid() {
		return ""
	}
	trusted := v.Type() == reflect.TypeFor[URL]()
	text := textOf(v)
	if p == atURL && !trusted && !isSafe(text) {
		text = "#ZgotmplZ" // as html/template writes, which can be searched for
	}
	if p != inText {
		text = percentEncoded(text, p != inParams)
	}
	return special.Replace(text)
}

// special are the characters that mean something in HTML.
var special = strings.NewReplacer("\x00", "\uFFFD", `"`, "&#34;", "&", "&amp;", "'", "&#39;", "+", "&#43;", "<", "&lt;", ">", "&gt;")

func textOf(v reflect.Value) string {
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		switch v.Interface().(type) {
		case fmt.Stringer, error:
			return fmt.Sprint(v.Interface())
		}
		v = v.Elem()
	}
	return fmt.Sprint(v.Interface())
}

// isSafe reports whether a URL is relative, or leads to a page or to a mail.
func isSafe(url string) bool {
	scheme, _, ok := strings.Cut(url, ":")
	return !ok || strings.Contains(scheme, "/") || strings.EqualFold(scheme, "http") ||
		strings.EqualFold(scheme, "https") || strings.EqualFold(scheme, "mailto")
}

// percentEncoded encodes what may not be in a URL; unless it is a whole one, also what has a meaning in it.
func percentEncoded(text string, whole bool) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	var out strings.Builder
	for i := range len(text) {
		c := text[i]
		switch {
		case strings.IndexByte(letters+"-._~", c) >= 0,
			whole && strings.IndexByte("!#$&*+,/:;=?@[]", c) >= 0,
			whole && c == '%' && i+2 < len(text) && isHex(text[i+1]) && isHex(text[i+2]):
			out.WriteByte(c)
		default:
			fmt.Fprintf(&out, "%%%02x", c)
		}
	}
	return out.String()
}

func isHex(c byte) bool { return strings.IndexByte("0123456789abcdefABCDEF", c) >= 0 }

// cursor is how far the HTML of a template is read.
type cursor struct {
	tag   string // what is read of the tag in which it is, without values
	value bool   // in the value of an attribute
	place place
}

// locate finds the place of everything that a part of a template inserts. It begins and returns
// where the text before it and after it ends.
func (t *Templates) locate(name string, node parse.Node, at cursor) cursor {
	branches := func(n *parse.BranchNode) cursor {
		end, other := t.locate(name, n.List, at), t.locate(name, n.ElseList, at)
		if end.value != other.value || (end.tag == "") != (other.tag == "") {
			panic(fmt.Sprintf("template %s: the branches of %.40s end in different places", name, n))
		}
		if end.place != other.place {
			end.place = nowhere
		}
		return end
	}
	switch n := node.(type) {
	case *parse.ListNode:
		if n != nil {
			for _, one := range n.Nodes {
				at = t.locate(name, one, at)
			}
		}
	case *parse.TextNode:
		return at.read(string(n.Text))
	case *parse.ActionNode:
		if at.place == nowhere && len(n.Pipe.Decl) == 0 {
			panic(fmt.Sprintf("template %s: %s is neither in text nor in a quoted attribute of text", name, n))
		}
		t.places[n] = at.place
	case *parse.IfNode:
		return branches(&n.BranchNode)
	case *parse.WithNode:
		return branches(&n.BranchNode)
	case *parse.RangeNode:
		return branches(&n.BranchNode)
	}
	return at
}

// read reads text.
func (c cursor) read(text string) cursor {
	for _, r := range text {
		switch {
		case c.value && r == '"':
			c.value, c.place, c.tag = false, nowhere, c.tag+" "
		case c.value:
			if c.place == atURL {
				c.place = inPath
			}
			if c.place == inPath && (r == '?' || r == '#') {
				c.place = inParams
			}
		case c.tag == "":
			if r == '<' {
				c.tag, c.place = "<", nowhere
			}
		case r == '>':
			element := strings.ToLower(strings.Fields(c.tag)[0])
			c.tag, c.place = "", inText
			if element == "<script" || element == "<style" {
				c.place = nowhere
			}
		case r == '"':
			words := strings.Fields(c.tag)
			c.value, c.place = true, placeIn(strings.ToLower(strings.TrimSuffix(words[len(words)-1], "=")))
		default:
			c.tag += string(r)
		}
	}
	return c
}

func placeIn(attribute string) place {
	switch attribute {
	case "href", "xlink:href", "src", "action", "formaction", "cite", "data", "poster":
		return atURL
	case "style", "srcdoc", "srcset", "ping":
		return nowhere
	}
	if strings.HasPrefix(attribute, "on") {
		return nowhere
	}
	return inText
}
