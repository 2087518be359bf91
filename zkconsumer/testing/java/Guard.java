import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;

/**
 * Runs another program's main, and ends this JVM at once when standard input ends.
 *
 * Whoever started the sandbox holds the other end of that pipe.  However that process dies, its end closes, so no
 * server outlives it.  The system's own "signal on parent's death" would fire when the starting thread ends.
 */
public final class Guard {
    private Guard() {}

    public static void main(String[] args) throws Throwable {
        Thread watcher = new Thread(Guard::haltAtEndOfInput, "sandbox-guard");
        watcher.setDaemon(true);
        watcher.start();
        Method main = Class.forName(args[0]).getMethod("main", String[].class);
        try {
            main.invoke(null, (Object) Arrays.copyOfRange(args, 1, args.length));
        } catch (InvocationTargetException e) {
            throw e.getCause();
        }
    }

    private static void haltAtEndOfInput() {
        try {
            while (System.in.read() >= 0) {
                // Nothing is ever sent: only the end counts.
            }
        } catch (IOException e) {
            // A broken input is an ended input.
        }
        Runtime.getRuntime().halt(137);
    }
}
