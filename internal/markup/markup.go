// Package markup makes HTML of templates in the language of text/template, and escapes what they
// insert by the place at which it stands, as html/template does. It knows the part of both that
// pages need, and refuses the rest when templates are read.
//
// html/template calls methods by names that are known when it runs. The linker keeps every method
// of the whole program then, a tenth of its size. Here a table has the methods that templates call.
package markup

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"path"
	"reflect"
	"text/template/parse"
)

// Templates are templates by their names: those of files, and those that files define.
type Templates struct {
	trees   map[string]*parse.Tree
	funcs   map[string]reflect.Value
	methods map[string][]reflect.Value
	places  map[*parse.ActionNode]place
}

// New reads the templates of files, which may call functions and methods by their names. A method
// is a function of its receiver; several types may have one of a name. New panics if a template is
// wrong.
func New(files fs.FS, pattern string, funcs map[string]any, methods map[string][]any) *Templates {
	t := &Templates{
		trees: map[string]*parse.Tree{}, funcs: map[string]reflect.Value{},
		methods: map[string][]reflect.Value{}, places: map[*parse.ActionNode]place{},
	}
	for _, all := range []map[string]any{builtins, funcs} {
		for name, f := range all {
			t.funcs[name] = reflect.ValueOf(f)
		}
	}
	for name, all := range methods {
		for _, f := range all {
			t.methods[name] = append(t.methods[name], reflect.ValueOf(f))
		}
	}
	names, err := fs.Glob(files, pattern)
	if err != nil {
		panic(err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			panic(err)
		}
		trees, err := parse.Parse(path.Base(name), string(text), "", "", builtins, funcs)
		if err != nil {
			panic(err)
		}
		for name, tree := range trees {
			if t.trees[name] != nil {
				panic("the template " + name + " is defined twice")
			}
			t.trees[name] = tree
			if end := t.locate(name, tree.Root, cursor{}); end != (cursor{}) {
				panic("the template " + name + " ends in a tag")
			}
		}
	}
	return t
}

// Execute writes what a template makes of data, all of it or nothing.
func (t *Templates) Execute(w io.Writer, name string, data any) (err error) {
	e := &execution{Templates: t}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("template %s: %v", name, p)
		}
	}()
	e.template(name, reflect.ValueOf(data))
	_, err = w.Write(e.out.Bytes())
	return err
}

// execution is the work on one page. What is wrong makes it panic.
type execution struct {
	*Templates
	out  bytes.Buffer
	vars []variable
}

type variable struct {
	name  string
	value reflect.Value
}

// template executes a template with variables of its own.
func (e *execution) template(name string, dot reflect.Value) {
	tree := e.trees[name]
	if tree == nil {
		panic("there is no template " + name)
	}
	outer := e.vars
	e.vars = []variable{{"$", dot}}
	e.walk(tree.Root, dot)
	e.vars = outer
}

func (e *execution) walk(node parse.Node, dot reflect.Value) {
	switch n := node.(type) {
	case *parse.ListNode:
		if n != nil { // an else that is not there
			for _, one := range n.Nodes {
				e.walk(one, dot)
			}
		}
	case *parse.TextNode:
		e.out.Write(n.Text)
	case *parse.ActionNode:
		if v := e.pipe(n.Pipe, dot); len(n.Pipe.Decl) == 0 {
			e.out.WriteString(e.places[n].escape(v))
		} else {
			e.vars = append(e.vars, variable{n.Pipe.Decl[0].Ident[0], v})
		}
	case *parse.TemplateNode:
		var v reflect.Value
		if n.Pipe != nil {
			v = e.pipe(n.Pipe, dot)
		}
		e.template(n.Name, v)
	case *parse.IfNode:
		e.branch(&n.BranchNode, dot, e.pipe(n.Pipe, dot), dot)
	case *parse.WithNode:
		v := e.pipe(n.Pipe, dot)
		e.branch(&n.BranchNode, dot, v, v)
	case *parse.RangeNode:
		e.loop(n, dot)
	default:
		panic(fmt.Sprintf("%v is not known here", node))
	}
}

// branch takes the first list with the dot inside if the condition is true, else the other one.
func (e *execution) branch(n *parse.BranchNode, dot, condition, inside reflect.Value) {
	outer := e.vars
	if truth(condition) {
		e.walk(n.List, inside)
	} else {
		e.walk(n.ElseList, dot)
	}
	e.vars = outer
}

func (e *execution) loop(n *parse.RangeNode, dot reflect.Value) {
	list := concrete(e.pipe(n.Pipe, dot))
	if !list.IsValid() || list.Len() == 0 {
		e.branch(&n.BranchNode, dot, reflect.Value{}, dot)
		return
	}
	outer := e.vars
	for i := range list.Len() {
		if names := n.Pipe.Decl; len(names) == 2 {
			e.vars = append(e.vars, variable{names[0].Ident[0], reflect.ValueOf(i)},
				variable{names[1].Ident[0], list.Index(i)})
		}
		e.walk(n.List, list.Index(i))
		e.vars = outer
	}
}

func (e *execution) pipe(n *parse.PipeNode, dot reflect.Value) reflect.Value {
	if len(n.Cmds) > 1 {
		panic(fmt.Sprintf("%v hands a value on, which is not known here", n))
	}
	args := n.Cmds[0].Args
	return e.value(args[0], args[1:], dot)
}

// value returns the value of a node, which is called with arguments if it is a function or a method.
func (e *execution) value(node parse.Node, args []parse.Node, dot reflect.Value) reflect.Value {
	switch n := node.(type) {
	case *parse.DotNode:
		return dot
	case *parse.PipeNode:
		return e.pipe(n, dot)
	case *parse.FieldNode:
		return e.fields(dot, n.Ident, args, dot)
	case *parse.ChainNode:
		return e.fields(e.value(n.Node, nil, dot), n.Field, args, dot)
	case *parse.VariableNode:
		for i := len(e.vars) - 1; ; i-- { // the parser knows that it is there
			if e.vars[i].name == n.Ident[0] {
				return e.fields(e.vars[i].value, n.Ident[1:], args, dot)
			}
		}
	case *parse.IdentifierNode:
		return e.call(e.funcs[n.Ident], nil, args, dot)
	case *parse.StringNode:
		return reflect.ValueOf(n.Text)
	case *parse.NumberNode:
		if n.IsInt {
			return reflect.ValueOf(int(n.Int64))
		}
	}
	panic(fmt.Sprintf("%v is not known here", node))
}

// fields follows names from a value. The arguments belong to the last one.
func (e *execution) fields(v reflect.Value, names []string, args []parse.Node, dot reflect.Value) reflect.Value {
	if len(names) == 0 {
		return v
	}
	for ; len(names) > 1; names = names[1:] {
		v = e.field(v, names[0], nil, dot)
	}
	return e.field(v, names[0], args, dot)
}

func (e *execution) field(v reflect.Value, name string, args []parse.Node, dot reflect.Value) reflect.Value {
	for _, method := range e.methods[name] {
		if receiver, ok := as(v, method.Type().In(0)); ok {
			return e.call(method, []reflect.Value{receiver}, args, dot)
		}
	}
	if at := concrete(v); at.Kind() == reflect.Struct && len(args) == 0 {
		if field := at.FieldByName(name); field.IsValid() {
			return field
		}
	}
	panic(fmt.Sprintf("%v has no %s", typeOf(v), name))
}

func (e *execution) call(f reflect.Value, in []reflect.Value, args []parse.Node, dot reflect.Value) reflect.Value {
	t := f.Type()
	for _, arg := range args {
		wanted := t.In(min(len(in), t.NumIn()-1))
		if t.IsVariadic() && len(in) >= t.NumIn()-1 {
			wanted = wanted.Elem()
		}
		v := e.value(arg, nil, dot)
		converted, ok := as(v, wanted)
		if !ok {
			panic(fmt.Sprintf("%v is %v, which %v does not take", arg, typeOf(v), t))
		}
		in = append(in, converted)
	}
	out := f.Call(in)[0]
	if v, ok := out.Interface().(reflect.Value); ok {
		return v
	}
	return out
}
