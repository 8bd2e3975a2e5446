# title: Java: compile, threads, collections, an HTTP server
# area: Languages
# flags: --memory 2g
cat > A.java <<'J'
import java.util.*;import java.util.concurrent.*;import java.util.stream.*;import java.net.*;import java.net.http.*;import com.sun.net.httpserver.*;
public class A{public static void main(String[] x)throws Exception{
ExecutorService e=Executors.newFixedThreadPool(8);List<Future<Long>> f=new ArrayList<>();for(int i=0;i<20;i++){final int n=i;f.add(e.submit(()->LongStream.range(0,100000+n).sum()));}long t=0;for(var q:f)t+=q.get();e.shutdown();System.out.println(t);
TreeMap<Integer,Long> m=IntStream.range(0,1000).boxed().collect(Collectors.groupingBy(i->i%7,TreeMap::new,Collectors.counting()));System.out.println(m);
HttpServer s=HttpServer.create(new InetSocketAddress("127.0.0.1",0),0);s.createContext("/",h->{h.sendResponseHeaders(200,2);h.getResponseBody().write("ok".getBytes());h.close();});s.start();
System.out.println(HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create("http://127.0.0.1:"+s.getAddress().getPort())).build(),HttpResponse.BodyHandlers.ofString()).body());s.stop(0);
byte[][] g=new byte[200][];for(int i=0;i<2000;i++)g[i%200]=new byte[100000];System.gc();System.out.println(g.length);}}
J
javac A.java && java A
