import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;

/**
 * Runs another program's main, and ends this JVM at once when standard input ends.
 *
 * The process that started the sandbox has the other end of that pipe.  When that process dies in any way, its end
 * closes, so no server outlives it.  The system's own "signal on parent's death" would fire when the starting thread ends.
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
                // No data are ever sent: only the end of the input counts.
            }
        } catch (IOException e) {
            // An error of the input counts as its end.
        }
        Runtime.getRuntime().halt(137);
    }
}
