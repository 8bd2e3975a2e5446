# title: Go: build, run, race of goroutines, an HTTP server
# area: Languages
# flags: --memory 3g
export GOCACHE=/tmp/c GO111MODULE=auto
cat > a.go <<'G'
package main
import ("fmt";"io";"net/http";"net/http/httptest";"sync";"os/exec")
func main(){var wg sync.WaitGroup;var mu sync.Mutex;n:=0;for i:=0;i<100;i++{wg.Add(1);go func(){defer wg.Done();for j:=0;j<1000;j++{mu.Lock();n++;mu.Unlock()}}()};wg.Wait();fmt.Println(n)
s:=httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,r *http.Request){fmt.Fprint(w,"pong")}));r,_:=http.Get(s.URL);b,_:=io.ReadAll(r.Body);fmt.Println(string(b));o,_:=exec.Command("echo","x").Output();fmt.Print(string(o))}
G
go run a.go
