import java.io.FileInputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.util.Base64;

/** Writes the key and the certificates of an entry of a PKCS #12 file as PEM, which keytool cannot. */
public class Pem {
    public static void main(String[] arguments) throws Exception {
        char[] password = arguments[1].toCharArray();
        KeyStore store = KeyStore.getInstance("PKCS12");
        try (FileInputStream file = new FileInputStream(arguments[0])) {
            store.load(file, password);
        }
        String alias = arguments[2];
        StringBuilder out = new StringBuilder();
        out.append(block("PRIVATE KEY", store.getKey(alias, password).getEncoded()));
        for (Certificate certificate : store.getCertificateChain(alias)) {
            out.append(block("CERTIFICATE", certificate.getEncoded()));
        }
        Files.write(Path.of(arguments[3]), out.toString().getBytes(StandardCharsets.US_ASCII));
    }

    private static String block(String name, byte[] data) {
        String text = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(data);
        return "-----BEGIN " + name + "-----\n" + text + "\n-----END " + name + "-----\n";
    }
}
