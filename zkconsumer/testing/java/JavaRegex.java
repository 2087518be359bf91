import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;

/**
 * Answers as java.util.regex does: which names a pattern matches completely, as the Scala consumer's topic filters do.
 *
 * Standard input: a line a pattern, "pattern name name ...", each in base64 (UTF-8).  Standard output, line by line:
 * "invalid" when Pattern.compile rejects it, "broken" and an exception when it fails, else one character a name: 1 it matches, 0 it does not, ? Java needed too
 * many steps (or too much stack), ! the match failed with an exception.
 */
public final class JavaRegex {
    private static final int STEPS_MAX = 2_000_000;

    private JavaRegex() {}

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, "US-ASCII");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(line.split(" ", -1)));
        }
        out.flush();
    }

    private static String answer(String[] words) {
        Pattern pattern;
        try {
            pattern = Pattern.compile(text(words[0]));
        } catch (PatternSyntaxException e) {
            return "invalid";
        } catch (RuntimeException e) {
            return "broken " + e.getClass().getSimpleName();
        }
        StringBuilder answers = new StringBuilder();
        for (int i = 1; i < words.length; i++) {
            try {
                Matcher matcher = pattern.matcher(new Counted(text(words[i])));
                answers.append(matcher.matches() ? '1' : '0');
            } catch (TooManySteps | StackOverflowError e) {
                answers.append('?');
            } catch (RuntimeException e) {
                answers.append('!');
            }
        }
        return answers.toString();
    }

    private static String text(String base64) {
        return new String(Base64.getDecoder().decode(base64), StandardCharsets.UTF_8);
    }

    private static final class TooManySteps extends RuntimeException {
        private static final long serialVersionUID = 1;
    }

    /** A text that counts how often it is read. */
    private static final class Counted implements CharSequence {
        private final String text;
        private int steps;

        Counted(String text) {
            this.text = text;
        }

        @Override
        public char charAt(int index) {
            if (++steps > STEPS_MAX) {
                throw new TooManySteps();
            }
            return text.charAt(index);
        }

        @Override
        public int length() {
            return text.length();
        }

        @Override
        public CharSequence subSequence(int start, int end) {
            return text.substring(start, end);
        }

        @Override
        public String toString() {
            return text;
        }
    }
}
