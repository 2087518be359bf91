import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;

/**
 * One JSON object a line on standard output.
 *
 * A line is written as soon as the writer thread is free; meanwhile further lines are queued.  So an idle program
 * reports at once (a kill loses almost nothing) and a busy one writes in large pieces.
 */
final class Lines {
    private static final int GATHERED_CHARS_MAX = 1 << 20;

    private final OutputStream out = new FileOutputStream(FileDescriptor.out);
    private final Thread writer = new Thread(this::write, "sandbox-lines");
    private StringBuilder gathered = new StringBuilder();
    private StringBuilder spare = new StringBuilder();
    private boolean closed;

    Lines() {
        writer.setDaemon(true);
        writer.start();
    }

    /** Adds {"event":EVENT,"t":NOW,NAME:VALUE,...}; names and values alternate. */
    void event(String event, Object... pairs) {
        StringBuilder line = new StringBuilder("{\"event\":\"").append(event).append("\",\"t\":");
        line.append(System.currentTimeMillis());
        for (int i = 0; i < pairs.length; i += 2) {
            line.append(",\"").append(pairs[i]).append("\":");
            value(line, pairs[i + 1]);
        }
        add(line.append("}\n"));
    }

    /** The line for a message, without any object of its own: there may be a hundred thousand a second. */
    synchronized void handed(String topic, int partition, long offset, int thread, byte[] value) {
        waitForRoom();
        gathered.append("{\"event\":\"handed\",\"topic\":\"").append(topic);
        gathered.append("\",\"partition\":").append(partition);
        gathered.append(",\"offset\":").append(offset);
        gathered.append(",\"thread\":").append(thread);
        if (value != null) {
            gathered.append(",\"value\":");
            value(gathered, new String(value, StandardCharsets.UTF_8));
        }
        gathered.append(",\"t\":").append(System.currentTimeMillis()).append("}\n");
        notifyAll();
    }

    /** Writes the queued lines and accepts no more. */
    void close() throws InterruptedException {
        synchronized (this) {
            closed = true;
            notifyAll();
        }
        writer.join(5000);
    }

    private synchronized void add(CharSequence line) {
        waitForRoom();
        gathered.append(line);
        notifyAll();
    }

    private void waitForRoom() {
        while (gathered.length() > GATHERED_CHARS_MAX && !closed) {
            try {
                wait();
            } catch (InterruptedException e) {
                // The line must still be written; standard output is a file, so space becomes free soon.
            }
        }
    }

    private void write() {
        try {
            for (StringBuilder full = next(); full != null; full = next()) {
                out.write(full.toString().getBytes(StandardCharsets.UTF_8));
                full.setLength(0);
            }
        } catch (IOException | InterruptedException e) {
            Runtime.getRuntime().halt(4);
        }
    }

    private synchronized StringBuilder next() throws InterruptedException {
        while (gathered.length() == 0) {
            if (closed) {
                return null;
            }
            wait();
        }
        StringBuilder full = gathered;
        gathered = spare;
        spare = full;
        notifyAll();
        return full;
    }

    private static void value(StringBuilder line, Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            line.append(value);
            return;
        }
        line.append('"');
        String text = value.toString();
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\') {
                line.append('\\').append(c);
            } else if (c < 0x20 || c > 0x7e) {
                line.append(String.format("\\u%04x", (int) c));
            } else {
                line.append(c);
            }
        }
        line.append('"');
    }
}
