package web

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template/parse"
)

// Nothing of these packages makes markup of a text: no templates that escape nothing, no inline style
// or handler, and in the script nothing that parses a text.
func TestNothingMakesMarkupOfText(t *testing.T) {
	t.Parallel()
	for pattern, forbidden := range map[string]string{
		"*.go":             `"(html|text)/template"|markup\.URL`,
		"templates/*.html": `(?i)\sstyle=|\son[a-z]+=|<script>|javascript:`,
		"static/*.js":      `innerHTML|outerHTML|insertAdjacentHTML|\beval\b|new Function|document\.write|\.style\b|DOMParser`,
	} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, files, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if file == "images.go" { // W4: the URL of an image, made of a known type and base64
				data = []byte(strings.ReplaceAll(string(data), "markup.URL", ""))
			}
			if found := regexp.MustCompile(forbidden).FindString(string(data)); found != "" && !strings.HasSuffix(file, "_test.go") {
				t.Errorf("%s has %q", file, found)
			}
		}
	}
}

func TestScriptAndStyleAreSmall(t *testing.T) {
	t.Parallel()
	size := 0
	for _, one := range assets() {
		size += len(one.data)
	}
	if size > 70_000 {
		t.Errorf("script and style have %d bytes", size)
	}
}

// Whatever a template asks of a value is a field of its type, or a method that is in the table: for
// each page, in each branch, whether or not a test shows it.
func TestTemplatesAskForWhatIsThere(t *testing.T) {
	t.Parallel()
	c := check{t: t, trees: map[string]*parse.Tree{}, seen: map[string]bool{}}
	names, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	known := map[string]any{"and": 0, "or": 0, "not": 0, "eq": 0, "ne": 0, "lt": 0, "le": 0, "gt": 0, "len": 0, "index": 0, "printf": 0}
	for _, name := range names {
		text, err := fs.ReadFile(templateFiles, name)
		if err != nil {
			t.Fatal(err)
		}
		trees, err := parse.Parse(filepath.Base(name), string(text), "", "", known, functions())
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(c.trees, trees)
	}
	pages := map[string]any{"answer.html": &answerPage{}, "answered.html": &answered{}, "compare.html": &comparePage{}, "file.html": &filePage{}, "inbox.html": &inboxPage{}, "opened.html": openedPage{}, "outputs.html": &outputsPage{}, "refused.html": refusedPage{}, "rollout.html": &rolloutPage{}, "run.html": &runPage{}, "runs.html": &runsPage{}, "triggers.html": &triggersPage{}}
	for name, page := range pages {
		c.template(name, reflect.TypeOf(page))
	}
	for name := range c.trees {
		if name != "layout.html" && !slices.ContainsFunc(slices.Collect(maps.Keys(c.seen)), func(s string) bool { return strings.HasPrefix(s, name+" ") }) {
			t.Errorf("no page has the template %s", name)
		}
	}
	for name := range methods() {
		if !c.seen["method "+name] {
			t.Errorf("no template calls the method %s", name)
		}
	}
}

// check follows the types of values through templates. A nil type is one that no template looks into.
type check struct {
	t     *testing.T
	trees map[string]*parse.Tree
	seen  map[string]bool
	name  string
}

func (c check) template(name string, dot reflect.Type) {
	key := fmt.Sprint(name, " ", dot)
	if c.seen[key] {
		return
	}
	c.seen[key], c.name = true, name
	if c.trees[name] == nil {
		c.t.Fatal("there is no template ", name)
	}
	c.walk(c.trees[name].Root, dot, map[string]reflect.Type{"$": dot})
}

func (c check) walk(node parse.Node, dot reflect.Type, vars map[string]reflect.Type) {
	branch := func(n *parse.BranchNode, inside reflect.Type, inner map[string]reflect.Type) {
		c.walk(n.List, inside, inner)
		if n.ElseList != nil {
			c.walk(n.ElseList, dot, maps.Clone(vars))
		}
	}
	switch n := node.(type) {
	case *parse.ListNode:
		for _, one := range n.Nodes {
			c.walk(one, dot, vars)
		}
	case *parse.ActionNode:
		v := c.value(n.Pipe, dot, vars)
		if len(n.Pipe.Decl) > 0 {
			vars[n.Pipe.Decl[0].Ident[0]] = v
		}
	case *parse.TemplateNode:
		var v reflect.Type
		if n.Pipe != nil {
			v = c.value(n.Pipe, dot, vars)
		}
		c.template(n.Name, v)
	case *parse.IfNode:
		c.value(n.Pipe, dot, vars)
		branch(&n.BranchNode, dot, maps.Clone(vars))
	case *parse.WithNode:
		branch(&n.BranchNode, c.value(n.Pipe, dot, vars), maps.Clone(vars))
	case *parse.RangeNode:
		list, inner := c.value(n.Pipe, dot, vars), maps.Clone(vars)
		if list.Kind() != reflect.Slice && list.Kind() != reflect.Array {
			c.t.Fatalf("%s: %s is %v", c.name, n.Pipe, list)
		}
		if len(n.Pipe.Decl) == 2 {
			inner[n.Pipe.Decl[0].Ident[0]], inner[n.Pipe.Decl[1].Ident[0]] = reflect.TypeFor[int](), list.Elem()
		}
		branch(&n.BranchNode, list.Elem(), inner)
	}
}

func (c check) value(node parse.Node, dot reflect.Type, vars map[string]reflect.Type) reflect.Type {
	switch n := node.(type) {
	case *parse.PipeNode:
		return c.value(n.Cmds[0], dot, vars)
	case *parse.CommandNode:
		var args []reflect.Type
		for _, arg := range n.Args[1:] {
			args = append(args, c.value(arg, dot, vars))
		}
		name, ok := n.Args[0].(*parse.IdentifierNode)
		switch {
		case !ok:
			return c.value(n.Args[0], dot, vars)
		case functions()[name.Ident] != nil:
			return reflect.TypeOf(functions()[name.Ident]).Out(0)
		case name.Ident == "index":
			return args[0].Elem()
		case name.Ident == "or" || name.Ident == "and":
			return args[len(args)-1]
		}
	case *parse.DotNode:
		return dot
	case *parse.FieldNode:
		return c.fields(dot, n.Ident)
	case *parse.ChainNode:
		return c.fields(c.value(n.Node, dot, vars), n.Field)
	case *parse.VariableNode:
		v, ok := vars[n.Ident[0]]
		if !ok {
			c.t.Fatalf("%s: %s is not set there", c.name, n)
		}
		return c.fields(v, n.Ident[1:])
	}
	return nil // a text, a number or a truth
}

func (c check) fields(t reflect.Type, names []string) reflect.Type {
next:
	for _, name := range names {
		if t == nil {
			c.t.Fatalf("%s: .%s of a text, a number or nothing", c.name, name)
		}
		for _, method := range methods()[name] {
			f := reflect.TypeOf(method)
			if to := f.In(0); t == to || t == reflect.PointerTo(to) || reflect.PointerTo(t) == to {
				c.seen["method "+name] = true
				t = f.Out(0)
				continue next
			}
		}
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		field, ok := reflect.StructField{}, false
		if t.Kind() == reflect.Struct {
			field, ok = t.FieldByName(name)
		}
		if !ok {
			c.t.Errorf("%s: %v has no %s", c.name, t, name)
			return nil
		}
		t = field.Type
	}
	return t
}
