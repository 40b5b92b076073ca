// Store is a service that tests reach by its name. "put WORD" adds a word to a file in /data and to
// one in /more, "words" and "more" print them, and "puts" prints how many this process has got.
// With an argument it asks the running service.
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strings"
)

func main() {
	if len(os.Args) > 1 {
		c, err := net.Dial("tcp", "127.0.0.1:8000")
		if err != nil {
			os.Exit(1)
		}
		_ = c.Close()
		return
	}
	l, err := net.Listen("tcp", ":8000")
	if err != nil {
		panic(err)
	}
	puts := 0
	for {
		c, err := l.Accept()
		if err != nil {
			panic(err)
		}
		line, _ := bufio.NewReader(c).ReadString('\n')
		verb, word, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch verb {
		case "put":
			add("/data/words", word)
			add("/more/words", word)
			puts++
			_, _ = fmt.Fprintln(c, "ok")
		case "words", "more":
			words, _ := os.ReadFile(map[string]string{"words": "/data/words", "more": "/more/words"}[verb])
			_, _ = fmt.Fprintln(c, strings.TrimSpace(string(words)))
		case "puts":
			_, _ = fmt.Fprintln(c, puts)
		}
		_ = c.Close()
	}
}

func add(file, word string) {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	_, _ = fmt.Fprintf(f, "%s ", word)
	_ = f.Close()
}
